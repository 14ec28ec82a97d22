-- Rights. Writers of attached tables need none: their triggers run with the rights of our owner.
--
-- A schema made elsewhere, or default privileges, may have given PUBLIC something.
REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA :"schema" FROM PUBLIC;
