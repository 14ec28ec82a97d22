-- What follows is done with the rights of whoever installs, as it was before as_owner.sql.
DO $$
BEGIN
    PERFORM set_config('role', current_setting('pytube.install_role'), true);
END
$$;
