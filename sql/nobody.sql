-- What calls owners' functions belongs to tube_nobody, who has no rights, and is called by tube_owner alone. Done by
-- whoever installs: only a member may give.
GRANT CREATE ON SCHEMA :"schema" TO :"role_nobody";
ALTER FUNCTION :"schema".tube_private_call_agent(text, regclass, name[], text) OWNER TO :"role_nobody";
REVOKE CREATE ON SCHEMA :"schema" FROM :"role_nobody";
GRANT EXECUTE ON FUNCTION :"schema".tube_private_call_agent(text, regclass, name[], text) TO :"role_owner";
