"""Sessions with Postgres, errors of Postgres, and the installation of our SQL."""
