"""What is written of a PGSync schema compiles, and gives its documents."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from pytube.config import parse
from pytube.documents.catalogue import Catalogue
from pytube.documents.compile import compile_document
from pytube.documents.pgsync import from_pgsync

TABLES = """
CREATE TABLE public.wing (id int PRIMARY KEY, "Name" text);
CREATE TABLE public.room (id int PRIMARY KEY, "order" int, wing_id int);
CREATE TABLE public.exhibit (id int PRIMARY KEY, title text, about jsonb, room_id int REFERENCES public.room);
CREATE TABLE public.artist (id int PRIMARY KEY, first_name text, last_name text);
CREATE TABLE public.exhibit_artist (exhibit_id int REFERENCES public.exhibit,
    artist_id int REFERENCES public.artist, PRIMARY KEY (exhibit_id, artist_id));
CREATE TABLE public.keyword (id int PRIMARY KEY, exhibit_id int REFERENCES public.exhibit, word text);
INSERT INTO public.wing VALUES (1, 'north');
INSERT INTO public.room VALUES (1, 7, 1);
INSERT INTO public.exhibit VALUES
    (1, 'Sun', '{"size": {"w": 3}, "tags": ["old"]}', 1), (2, 'Moon', NULL, NULL);
INSERT INTO public.artist VALUES (1, 'Ann', 'Bo'), (2, 'Cid', NULL);
INSERT INTO public.exhibit_artist VALUES (1, 2), (1, 1);
INSERT INTO public.keyword VALUES (2, 1, 'b'), (1, 1, 'a');
"""
SCHEMA: dict[str, Any] = {
    "database": "museum",
    "index": "exhibits",
    "nodes": {
        "table": "exhibit",
        "columns": ["id", "title", "about->size->w", "about#>>{tags,0}"],
        "transform": {"rename": {"title": "Title", "about_size_w": "width"}},
        "children": [
            {
                "table": "room",
                "columns": ["order"],
                "relationship": {"type": "one_to_one", "variant": "object"},
                "children": [
                    {
                        "table": "wing",
                        "columns": ["Name"],
                        "label": "wing",
                        "relationship": {
                            "type": "one_to_one",
                            "variant": "scalar",
                            "foreign_key": {"parent": ["wing_id"], "child": ["id"]},
                        },
                    }
                ],
            },
            {
                "table": "artist",
                "label": "artists",
                "columns": ["first_name", "last_name"],
                "relationship": {
                    "type": "one_to_many",
                    "variant": "object",
                    "through_tables": ["exhibit_artist"],
                },
                "transform": {
                    "concat": {
                        "columns": ["first_name", "last_name"],
                        "destination": "name",
                        "delimiter": " ",
                    }
                },
            },
            {
                "table": "keyword",
                "label": "keywords",
                "columns": ["word"],
                "relationship": {"type": "one_to_many", "variant": "scalar"},
            },
        ],
    },
}


def test_documents_of_a_schema(conn: psycopg.Connection[Any]) -> None:
    conn.execute(TABLES)
    text, _ = from_pgsync(json.dumps([SCHEMA]))
    config = parse('[postgres]\ndsn = "dbname=museum"\n' + text, environment={"OPENSEARCH_URL": "http://x"})
    document = compile_document("exhibits", config.documents["exhibits"], Catalogue(conn))
    assert dict(conn.execute(document.query.encode(), {"ids": [1, 2]}).fetchall()) == {
        1: {
            "id": 1,
            "Title": "Sun",
            "width": 3,
            "about_tags,0": "old",
            "room": {"order": 7, "wing": "north"},
            "artists": [
                {"first_name": "Ann", "last_name": "Bo", "name": "Ann Bo"},
                {"first_name": "Cid", "last_name": None, "name": "Cid"},
            ],
            "keywords": ["a", "b"],
        },
        2: {
            "id": 2,
            "Title": "Moon",
            "width": None,
            "about_tags,0": None,
            "room": None,
            "artists": [],
            "keywords": [],
        },
    }
