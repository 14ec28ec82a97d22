# Prints the script that installs the extension, and updates it, from install.sql: `awk -f extension/script.awk install.sql`.
#
# Postgres itself puts in the schema, for @extschema@. It knows no other variable, so a file that has one is run as a
# text, once they are put in. SET ROLE is refused where a role without superuser installs: so all is made by a superuser,
# and prepare.sql, run again, gives it to its owner.

BEGIN {
    print "\\echo Run CREATE EXTENSION pytube, or ALTER EXTENSION pytube UPDATE, instead of this file. \\quit"
    run("extension/begin.sql")
}

/^\\set version / { version = $3 }
!/^\\ir / || $2 ~ /^psql\// || $2 in done { next }
{ done[$2] = 1 }
$2 ~ /^migrations\// { migrate($2); next }
$2 == "grants.sql" {
    run("extension/tables.sql")
    run("prepare.sql")
    run("extension/join.sql")
}
{ run($2) }

END {
    if (!failed)
        run("extension/leave.sql")
}

function run(file,   text) {
    text = read(file)
    print "\n-- " file "\n"
    if (text !~ /:["'](schema|capture|roles|role_[a-z]+)["']/) {
        printf "%s", text
        return
    }
    print "DO $pytube_do$\nDECLARE\n    script text := $pytube_file$\n" text "$pytube_file$;"
    print "    roles CONSTANT text := current_setting('pytube.install_roles');"
    print "    variable record;"
    print "BEGIN\n    FOR variable IN VALUES"
    print "        (':''schema''', quote_literal(current_setting('pytube.install_schema'))),"
    print "        (':''capture''', quote_literal(current_setting('pytube.install_capture'))),"
    print "        (':\"capture\"', quote_ident(current_setting('pytube.install_capture'))),"
    print "        (':\"role_admin\"', quote_ident(roles || '_admin')), (':\"role_worker\"', quote_ident(roles || '_worker')),"
    print "        (':\"role_writer\"', quote_ident(roles || '_writer')), (':\"role_monitor\"', quote_ident(roles || '_monitor')),"
    print "        (':''roles''', quote_literal(roles))"
    print "    LOOP\n        script := replace(script, variable.column1, variable.column2);\n    END LOOP;"
    print "    EXECUTE script;\nEND\n$pytube_do$;"
}

# Run once and recorded, as psql does by install.sql.
function migrate(file,   number) {
    number = substr(file, 12, 4)
    print "\n-- " file "\n"
    print "DO $pytube_do$\nBEGIN"
    print "    IF (SELECT coalesce(max(version_num), '') < '" number "' FROM @extschema@.tube_version) THEN"
    print "        EXECUTE $pytube_file$\n" read(file) "$pytube_file$;"
    print "        INSERT INTO @extschema@.tube_version VALUES ('" number "');"
    print "    END IF;\nEND\n$pytube_do$;"
}

function read(file,   line, text, got) {
    while ((got = (getline line < file)) > 0)
        text = text line "\n"
    if (got < 0) {
        print file ": can't be read" > "/dev/stderr"
        failed = 1
        exit 1
    }
    close(file)
    gsub(/:"schema"/, "@extschema@", text)
    gsub(/:'version'/, "'" version "'", text)
    gsub(/SET LOCAL ROLE [^\n]*\n/, "", text)
    gsub(/psql -v (schema|roles)=NAME/, "CREATE EXTENSION pytube SCHEMA NAME", text)
    return text
}
