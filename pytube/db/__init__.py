"""Sessions with Postgres, errors of Postgres, and the installation of pytube's SQL."""
