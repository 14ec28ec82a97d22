-- tube_private_check_term: refuses arguments of tube_leader_acquire that make no sense.
--
-- Result: nothing, when they are right.
-- Errors: 22023, with what was expected; 22004 where a value is missing.
CREATE OR REPLACE FUNCTION :"schema".tube_private_check_term(
    leader_id uuid, instance_id uuid, client_id text, election text, hold interval, lease interval
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF leader_id IS NULL OR instance_id IS NULL OR client_id IS NULL THEN
        RAISE EXCEPTION 'leader_id, instance_id and client_id must be given'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Draw a fresh leader_id for each term.';
    END IF;
    IF election IS NULL OR election NOT IN ('neli', 'lease') THEN
        RAISE EXCEPTION 'there is no election %', quote_nullable(election)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'It is ''neli'' or ''lease''.';
    END IF;
    IF hold IS NULL OR hold <= interval '0' THEN
        RAISE EXCEPTION 'hold is %, and must be more than nothing', coalesce(hold::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                HINT = 'It is the trust deadline and the sink''s request timeout together.';
    END IF;
    IF election = 'lease' AND (lease IS NULL OR lease <= interval '0') THEN
        RAISE EXCEPTION 'lease is %, and must be more than nothing', coalesce(lease::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'The election ''lease'' needs one.';
    END IF;
    IF election = 'neli' AND lease IS NOT NULL THEN
        RAISE EXCEPTION 'the election ''neli'' has no lease, got %', lease
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out.';
    END IF;
    IF EXISTS (SELECT FROM tube_term AS t WHERE t.leader_id = tube_private_check_term.leader_id)
       OR EXISTS (SELECT FROM tube_leader AS l WHERE l.leader_id = tube_private_check_term.leader_id) THEN
        RAISE EXCEPTION 'leader_id % was used before', leader_id
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Draw a fresh one for each term.';
    END IF;
END
$$;
