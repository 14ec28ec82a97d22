"""The long run: workers under random faults, and a checker that reads what everybody wrote down.

    python -m tests.crash.chaos --minutes 60

`arena` has the servers and the tables, `crew` the worker processes, `sink` what they deliver to,
`monkey` the faults. `ledger` knows none of these: it reads records, and says what is wrong.
"""
