"""Three nodes of OpenSearch that are one cluster, each a process of its own that can be killed or frozen."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytube.embedded.process import HOST, Port
from pytube.embedded.search_server import OpenSearch
from tests.helpers.opensearch import request
from tests.helpers.waiting import wait_until

NODES = 3
"""With one of them gone, the two others still elect who manages the cluster."""


class Node(OpenSearch):
    """One of them."""

    heap = "256m"

    def __init__(self, directory: Path, cluster: str, own: Port, ports: Sequence[Port]) -> None:
        """Args: its folder, the cluster's name, its port for the others, and those of all."""
        super().__init__(directory)
        self._cluster = cluster
        self._own = own
        self._seeds = ports

    def _discovery(self) -> str:
        addresses = ", ".join(f'"{HOST}:{port.number}"' for port in self._seeds)
        return (
            f"transport.port: {self._own.number}\n"
            f"discovery.seed_hosts: [{addresses}]\n"
            f"cluster.initial_cluster_manager_nodes: [{addresses}]\n"
            # A node that is frozen stays in the cluster for as long as a test looks at it.
            "cluster.fault_detection.follower_check.timeout: 60s\n"
        )

    @property
    def id(self) -> str:
        """As the cluster calls it."""
        (found,) = request(f"{self.url}/_nodes/_local")["nodes"]
        return str(found)


class Cluster:
    """All nodes; they run within `with`."""

    def __init__(self, directory: Path) -> None:
        """Nothing runs before `with`."""
        self._ports = [Port() for _ in range(NODES)]
        self.nodes = [
            Node(directory / str(number), directory.name, port, self._ports)
            for number, port in enumerate(self._ports)
        ]
        self._by_id: dict[str, Node] = {}

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(NODES) as pool:  # none serves before most of them are there
            list(pool.map(Node.start, self.nodes))
        self.wait_for(nodes=NODES)
        self._by_id = {node.id: node for node in self.nodes}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            node.close()
        for port in self._ports:
            port.release()

    @property
    def urls(self) -> list[str]:
        """The addresses of all nodes."""
        return [node.url for node in self.nodes]

    @property
    def manager(self) -> Node:
        """The node that manages the cluster."""
        (found,) = self._ask("/_cat/cluster_manager?format=json")
        return self._by_id[found["id"]]

    def holders(self, index: str) -> dict[str, Node]:
        """The nodes of the one shard of an index that serve: `p` its primary, `r` its replica."""
        copies = self._ask(f"/_cat/shards/{index}?format=json&h=prirep,state,id")
        return {copy["prirep"]: self._by_id[copy["id"]] for copy in copies if copy["state"] == "STARTED"}

    def wait_for(self, *, nodes: int, index: str = "", status: str = "green") -> None:
        """Until so many nodes are in the cluster, and the index has this status."""
        query = f"wait_for_nodes={nodes}&wait_for_status={status}&timeout=1s"
        wait_until(
            lambda: self._ask(f"/_cluster/health/{index}?{query}").get("timed_out") is False,
            what=f"{nodes} nodes, {status}",
        )

    def _ask(self, path: str) -> Any:
        """Ask any node that runs."""
        return request(next(node for node in self.nodes if node.running).url + path)
