/* pgseal--1.0.sql: SPDX-License-Identifier: Apache-2.0 OR MIT */
\echo Use "CREATE EXTENSION pgseal" to load this file. \quit

-- Types and operators go to the schema of the extension (public unless told otherwise), what users call to
-- schema pgseal, the catalog to _pgseal. The name of the last is not for beauty: pg_dump sorts the data of
-- tables by schema, and sealed columns can only be loaded when their keys are there.
CREATE SCHEMA pgseal;
CREATE SCHEMA _pgseal;
CREATE SCHEMA pgseal_decrypt;
CREATE SCHEMA pgseal_compare;
REVOKE ALL ON SCHEMA _pgseal FROM PUBLIC;
GRANT USAGE ON SCHEMA pgseal TO PUBLIC;
COMMENT ON SCHEMA pgseal_decrypt IS
    'one function for each key domain: EXECUTE on it is the right to decrypt values of the domain';
COMMENT ON SCHEMA pgseal_compare IS
    'one function for each key domain: EXECUTE on it is the right to compare with values of the domain, where that takes a right';

-- ---------------------------------------------------------------- catalog

-- The C code reads these tables by column number.
CREATE TABLE _pgseal.domain (
    domain name PRIMARY KEY,
    id int8 NOT NULL UNIQUE,
    protection text NOT NULL CHECK (protection IN ('provider', 'passphrase')),
    salt bytea NOT NULL CHECK (length(salt) = 16),
    on_denied text NOT NULL CHECK (on_denied IN ('error', 'mask')),
    random_version int NOT NULL,
    lookup_version int NOT NULL,
    rotating_to int NOT NULL DEFAULT 0,
    created timestamptz NOT NULL DEFAULT now(),
    compare text NOT NULL DEFAULT 'public' CHECK (compare IN ('public', 'granted'))
) WITH (user_catalog_table = true);

CREATE TABLE _pgseal.key (
    domain name NOT NULL,
    version int NOT NULL CHECK (version > 0),
    wrapped bytea NOT NULL CHECK (length(wrapped) = 69),
    created timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (domain, version)
) WITH (user_catalog_table = true);

CREATE TABLE _pgseal.type (
    type regtype PRIMARY KEY,
    base regtype NOT NULL,
    mode text NOT NULL CHECK (mode IN ('format', 'deterministic', 'random')),
    domain name NOT NULL,
    own bool NOT NULL DEFAULT false   -- comes with the extension
) WITH (user_catalog_table = true);

-- A rotation of lookup keys that is under way; see pgseal.rotate().
CREATE TABLE _pgseal.rotation (
    domain name PRIMARY KEY,
    from_version int NOT NULL,
    to_version int NOT NULL,
    started timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE _pgseal.rotation_table (
    domain name NOT NULL,
    relation regclass NOT NULL,
    target regclass NOT NULL,         -- what to update: the table, or the root of its partitions
    columns name[] NOT NULL,
    blocks int8 NOT NULL,
    next_block int8 NOT NULL DEFAULT 0,
    rows_done int8 NOT NULL DEFAULT 0,
    PRIMARY KEY (domain, relation)
);
CREATE TABLE _pgseal.rotation_ddl (
    domain name NOT NULL,
    step int NOT NULL,
    command text NOT NULL,
    PRIMARY KEY (domain, step)
);

-- Dumps carry the keys as they are stored: wrapped, worth nothing without the provider's key or the passphrase.
-- A dump without them could never be read again.
SELECT pg_catalog.pg_extension_config_dump('_pgseal.domain', '');
SELECT pg_catalog.pg_extension_config_dump('_pgseal.key', '');
SELECT pg_catalog.pg_extension_config_dump('_pgseal.type', 'WHERE NOT own');

CREATE FUNCTION _pgseal.changed() RETURNS trigger
    AS 'MODULE_PATHNAME', 'pgseal_catalog_changed' LANGUAGE C;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _pgseal.domain
    FOR EACH STATEMENT EXECUTE FUNCTION _pgseal.changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _pgseal.key
    FOR EACH STATEMENT EXECUTE FUNCTION _pgseal.changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON _pgseal.type
    FOR EACH STATEMENT EXECUTE FUNCTION _pgseal.changed();

-- Restoring a dump where the same keys are already: equal rows are passed over, others are an error.
CREATE FUNCTION _pgseal.same_row() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_TABLE_NAME = 'domain' THEN
        IF EXISTS (SELECT FROM _pgseal.domain AS d WHERE d.domain = NEW.domain AND d.id = NEW.id) THEN RETURN NULL; END IF;
    ELSIF TG_TABLE_NAME = 'key' THEN
        IF EXISTS (SELECT FROM _pgseal.key AS k
                   WHERE k.domain = NEW.domain AND k.version = NEW.version AND k.wrapped = NEW.wrapped) THEN
            RETURN NULL;
        END IF;
    ELSE
        IF EXISTS (SELECT FROM _pgseal.type AS t
                   WHERE t.type = NEW.type AND t.base = NEW.base AND t.mode = NEW.mode AND t.domain = NEW.domain) THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER same_row BEFORE INSERT ON _pgseal.domain FOR EACH ROW EXECUTE FUNCTION _pgseal.same_row();
CREATE TRIGGER same_row BEFORE INSERT ON _pgseal.key FOR EACH ROW EXECUTE FUNCTION _pgseal.same_row();
CREATE TRIGGER same_row BEFORE INSERT ON _pgseal.type FOR EACH ROW EXECUTE FUNCTION _pgseal.same_row();

CREATE FUNCTION _pgseal.random_bytes(int) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_random_bytes' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION _pgseal.wrap_new(id int8, version int, protection text, salt bytea) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_wrap_new' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION _pgseal.rewrap(id int8, version int, wrapped bytea, provider text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_rewrap' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION _pgseal.recrypt(value anyelement, from_version int, to_version int) RETURNS anyelement
    AS 'MODULE_PATHNAME', 'pgseal_recrypt_value' LANGUAGE C VOLATILE STRICT COST 50;
CREATE FUNCTION _pgseal.rotate_batch(target regclass, relation oid, columns name[], from_version int, to_version int,
                                     first_block int8, end_block int8) RETURNS int8
    AS 'MODULE_PATHNAME', 'pgseal_rotate_batch' LANGUAGE C VOLATILE STRICT;
CREATE FUNCTION _pgseal.equality_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME', 'pgseal_equality_support' LANGUAGE C;
CREATE FUNCTION _pgseal.numeric_typmod_in(cstring[]) RETURNS int
    AS 'MODULE_PATHNAME', 'pgseal_numeric_typmod_in' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- ---------------------------------------------------------------- key domains

CREATE FUNCTION pgseal.create_domain(domain name, protection text DEFAULT 'provider', on_denied text DEFAULT 'error')
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    new_id int8;
    new_salt bytea := _pgseal.random_bytes(16);
    id_bytes bytea := _pgseal.random_bytes(8);
BEGIN
    IF protection NOT IN ('provider', 'passphrase') THEN
        RAISE EXCEPTION 'a key domain is protected by ''provider'' or ''passphrase'', not by ''%''', protection;
    END IF;
    new_id := ('x' || encode(id_bytes, 'hex'))::bit(64)::int8;
    INSERT INTO _pgseal.domain AS d VALUES (domain, new_id, protection, new_salt, on_denied, 1, 1);
    INSERT INTO _pgseal.key VALUES (domain, 1, _pgseal.wrap_new(new_id, 1, protection, new_salt));
    EXECUTE format('CREATE FUNCTION pgseal_decrypt.%I() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS ''SELECT''', domain);
    EXECUTE format('REVOKE ALL ON FUNCTION pgseal_decrypt.%I() FROM PUBLIC', domain);
    EXECUTE format('CREATE FUNCTION pgseal_compare.%I() RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS ''SELECT''', domain);
    EXECUTE format('REVOKE ALL ON FUNCTION pgseal_compare.%I() FROM PUBLIC', domain);
END $$;
COMMENT ON FUNCTION pgseal.create_domain IS 'makes a key domain with a first key; columns that are compared share one';

-- A function without an ACL (pg_restore -x) is everybody's to GRANT, which would write that down.
CREATE FUNCTION _pgseal.close_right(of_right text, domain name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_proc WHERE pronamespace = of_right::regnamespace AND proname = domain AND proacl IS NULL) THEN
        EXECUTE format('REVOKE ALL ON FUNCTION %I.%I() FROM PUBLIC', of_right, domain);
    END IF;
END $$;
CREATE FUNCTION pgseal.grant_decrypt(domain name, role name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _pgseal.close_right('pgseal_decrypt', domain);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgseal_decrypt.%I() TO %I', domain, role);
END $$;
CREATE FUNCTION pgseal.revoke_decrypt(domain name, role name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _pgseal.close_right('pgseal_decrypt', domain);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION pgseal_decrypt.%I() FROM %I', domain, role);
END $$;
CREATE FUNCTION pgseal.grant_compare(domain name, role name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _pgseal.close_right('pgseal_compare', domain);
    EXECUTE format('GRANT EXECUTE ON FUNCTION pgseal_compare.%I() TO %I', domain, role);
END $$;
CREATE FUNCTION pgseal.revoke_compare(domain name, role name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _pgseal.close_right('pgseal_compare', domain);
    EXECUTE format('REVOKE EXECUTE ON FUNCTION pgseal_compare.%I() FROM %I', domain, role);
END $$;
CREATE FUNCTION pgseal.set_compare(domain name, compare text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE _pgseal.domain AS d SET compare = set_compare.compare WHERE d.domain = set_compare.domain;
    IF NOT FOUND THEN RAISE EXCEPTION 'there is no key domain "%"', domain; END IF;
END $$;
COMMENT ON FUNCTION pgseal.set_compare IS
    '''granted'': who has neither the right to compare nor to decrypt can store values and do nothing else with them; ''public'': everybody may compare';
CREATE FUNCTION pgseal.may_decrypt(domain name) RETURNS bool
    AS 'MODULE_PATHNAME', 'pgseal_may_decrypt_domain' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION pgseal.unlock(domain name) RETURNS void
    AS 'MODULE_PATHNAME', 'pgseal_unlock' LANGUAGE C VOLATILE STRICT;
COMMENT ON FUNCTION pgseal.unlock IS 'makes the keys of a domain ready now, so that a missing or wrong one shows here';

CREATE FUNCTION pgseal.set_on_denied(domain name, on_denied text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE _pgseal.domain AS d SET on_denied = set_on_denied.on_denied WHERE d.domain = set_on_denied.domain;
    IF NOT FOUND THEN RAISE EXCEPTION 'there is no key domain "%"', domain; END IF;
END $$;

CREATE FUNCTION pgseal.add_key(domain name) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d _pgseal.domain;
    next_version int;
BEGIN
    SELECT * INTO d FROM _pgseal.domain AS x WHERE x.domain = add_key.domain FOR UPDATE;
    IF NOT FOUND THEN RAISE EXCEPTION 'there is no key domain "%"', domain; END IF;
    SELECT max(k.version) + 1 INTO next_version FROM _pgseal.key AS k WHERE k.domain = add_key.domain;
    INSERT INTO _pgseal.key VALUES (domain, next_version, _pgseal.wrap_new(d.id, next_version, d.protection, d.salt));
    UPDATE _pgseal.domain AS x SET random_version = next_version WHERE x.domain = add_key.domain;
    RETURN next_version;
END $$;
COMMENT ON FUNCTION pgseal.add_key IS
    'a new key for new randomised values; old ones stay readable. Deterministic values: CALL pgseal.rotate()';

CREATE FUNCTION pgseal.change_provider(new_provider text) RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    changed int;
BEGIN
    UPDATE _pgseal.key AS k SET wrapped = _pgseal.rewrap(d.id, k.version, k.wrapped, new_provider)
    FROM _pgseal.domain AS d WHERE d.domain = k.domain AND d.protection = 'provider';
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;
COMMENT ON FUNCTION pgseal.change_provider IS
    'wraps the column keys under the key of another provider; set pgseal.provider to it right after';

CREATE VIEW pgseal.domains AS
    SELECT d.domain, d.protection, d.on_denied, d.random_version, d.lookup_version,
           (SELECT count(*) FROM _pgseal.key AS k WHERE k.domain = d.domain) AS keys, d.created,
           d.rotating_to <> 0 AS rotating, d.compare
    FROM _pgseal.domain AS d;
CREATE VIEW pgseal.types AS SELECT t.type, t.base, t.mode, t.domain FROM _pgseal.type AS t;
CREATE VIEW pgseal.columns AS
    SELECT c.oid::regclass AS relation, a.attname AS column_name, t.type, t.mode, t.domain
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN _pgseal.type AS t ON t.type = a.atttypid
    WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'm', 'f');
GRANT SELECT ON pgseal.domains, pgseal.types, pgseal.columns TO PUBLIC;

-- ---------------------------------------------------------------- making types

-- Runs a template with {name} replaced.
CREATE FUNCTION _pgseal.run(template text, names jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM jsonb_each_text(names) LOOP
        template := replace(template, '{' || r.key || '}', r.value);
    END LOOP;
    IF template ~ '\{[a-z_]+\}' THEN RAISE EXCEPTION 'pgseal: a name is missing in %', template; END IF;
    EXECUTE template;
END $$;

-- <, <=, >=, > by value: {l} and {r} are types, {f} a unique part of a function's name.
CREATE FUNCTION _pgseal.make_order(names jsonb, l text, r text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o record;
BEGIN
    FOR o IN SELECT * FROM (VALUES ('<', 'lt', '>', '>=', 'scalarlt'), ('<=', 'le', '>=', '>', 'scalarle'),
                                   ('>=', 'ge', '<=', '<', 'scalarge'), ('>', 'gt', '<', '<=', 'scalargt')) AS v(op, f, com, neg, est) LOOP
        PERFORM _pgseal.run($sql$
            CREATE FUNCTION {s}.{fn}_{f}({l}, {r}) RETURNS bool AS '$libdir/pgseal', 'pgseal_{f}'
                LANGUAGE C STABLE STRICT PARALLEL SAFE COST {cost};
            CREATE OPERATOR {s}.{op} (LEFTARG = {l}, RIGHTARG = {r}, FUNCTION = {s}.{fn}_{f},
                COMMUTATOR = OPERATOR({s}.{com}), NEGATOR = OPERATOR({s}.{neg}), RESTRICT = {est}sel, JOIN = {est}joinsel);
            $sql$, names || jsonb_build_object('op', o.op, 'f', o.f, 'com', o.com, 'neg', o.neg, 'est', o.est, 'l', l, 'r', r));
    END LOOP;
END $$;

-- = and <> between a sealed type and a plain one.
CREATE FUNCTION _pgseal.make_equality(names jsonb, l text, r text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _pgseal.run($sql$
        CREATE FUNCTION {s}.{fn}_eq_plain({l}, {r}) RETURNS bool AS '$libdir/pgseal', 'pgseal_eq_plain'
            LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST {cost} SUPPORT _pgseal.equality_support;
        CREATE FUNCTION {s}.{fn}_ne_plain({l}, {r}) RETURNS bool AS '$libdir/pgseal', 'pgseal_ne_plain'
            LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST {cost} SUPPORT _pgseal.equality_support;
        CREATE OPERATOR {s}.= (LEFTARG = {l}, RIGHTARG = {r}, FUNCTION = {s}.{fn}_eq_plain,
            COMMUTATOR = OPERATOR({s}.=), NEGATOR = OPERATOR({s}.<>), RESTRICT = eqsel, JOIN = eqjoinsel);
        CREATE OPERATOR {s}.<> (LEFTARG = {l}, RIGHTARG = {r}, FUNCTION = {s}.{fn}_ne_plain,
            COMMUTATOR = OPERATOR({s}.<>), NEGATOR = OPERATOR({s}.=), RESTRICT = neqsel, JOIN = neqjoinsel);
        $sql$, names || jsonb_build_object('l', l, 'r', r));
END $$;

-- An operator on plain values for sealed ones, where the parser would find none or several: sides are opened.
CREATE FUNCTION _pgseal.make_mixed(names jsonb, op text, l text, l_base text, l_plain text, r text, r_base text, r_plain text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    result text;
    word text;
    common text := CASE WHEN l_base = 'numeric' OR r_base = 'numeric' THEN 'numeric' WHEN op = '%' THEN 'bigint' END;
BEGIN
    SELECT format_type(o.oprresult, NULL) INTO STRICT result FROM pg_operator AS o
    WHERE o.oprname = op AND o.oprnamespace = 'pg_catalog'::regnamespace
      AND o.oprleft = coalesce(common, l_base)::regtype AND o.oprright = coalesce(common, r_base)::regtype;
    SELECT w INTO STRICT word FROM (VALUES ('+', 'add'), ('-', 'sub'), ('*', 'mul'), ('/', 'div'), ('%', 'mod'), ('<', 'ltv'), ('<=', 'lev'),
        ('>', 'gtv'), ('>=', 'gev'), ('=', 'eqv'), ('<>', 'nev')) AS v(o, w) WHERE v.o = op;
    PERFORM _pgseal.run($sql$
        CREATE FUNCTION {s}.{fn}_{word}({l}, {r}) RETURNS {result} LANGUAGE sql STABLE STRICT PARALLEL SAFE COST {cost}
            RETURN {lp}{lc} OPERATOR(pg_catalog.{op}) {rp}{rc};
        CREATE OPERATOR {s}.{op} (LEFTARG = {l}, RIGHTARG = {r}, FUNCTION = {s}.{fn}_{word});
        $sql$, names || jsonb_build_object('word', word, 'l', l, 'r', r, 'op', op, 'result', result,
            'lp', replace(l_plain, '?', '$1'), 'rp', replace(r_plain, '?', '$2'),
            'lc', coalesce('::' || common, ''), 'rc', coalesce('::' || common, '')));
END $$;

-- The types of the extension itself are made with this function too.
CREATE FUNCTION pgseal.create_type(type_name name, base regtype, mode text, domain name DEFAULT 'default',
                                   in_schema name DEFAULT current_schema())
RETURNS regtype LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $create$
DECLARE
    t text := format('%I.%I', in_schema, type_name);
    b text := format_type(base, NULL);
    layout text;             -- suffix of the C functions
    names jsonb;
    new_type regtype;
    x text;
    op text;
    plain_casts text[] := '{}';   -- further plain types with casts both ways
    cast_args text := '';
    equal_to text[];
    typmod bool := base = 'numeric'::regtype;
    u record;
    is_int bool := base IN ('int4'::regtype, 'int8'::regtype);
    is_number bool := base IN ('int4'::regtype, 'int8'::regtype, 'numeric'::regtype);
BEGIN
    IF mode NOT IN ('format', 'deterministic', 'random') THEN
        RAISE EXCEPTION 'a sealed type is ''format'', ''deterministic'' or ''random'', not ''%''', mode;
    END IF;
    IF mode = 'format' AND NOT base = ANY ('{int4,int8,date,timestamp,timestamptz,numeric}'::regtype[]) THEN
        RAISE EXCEPTION 'format-preserving types are made of int4, int8, date, timestamp, timestamptz and numeric, not of %', b
            USING HINT = 'Smaller domains are not safe: SP 800-38G wants a million values at least. Use ''deterministic'' or ''random''.';
    END IF;
    IF mode = 'deterministic' AND
       NOT base = ANY ('{int2,int4,int8,date,time,timestamp,timestamptz,numeric,text,bytea,uuid}'::regtype[]) THEN
        RAISE EXCEPTION 'equality of % is not equality of its bytes, so it cannot be deterministic', b USING HINT = 'Use ''random''.';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_type AS p WHERE p.oid = base AND p.typtype = 'b' AND p.oid::int8 < 16384
                   AND p.typcategory NOT IN ('A', 'Z') AND p.typlen <> -2 AND p.typname NOT LIKE 'reg%') THEN
        RAISE EXCEPTION 'the base of a sealed type is a base type of PostgreSQL, no array and no type made by users: %', b;
    END IF;
    IF length(type_name) > 40 THEN RAISE EXCEPTION 'the name of a sealed type has at most 40 characters'; END IF;

    layout := CASE WHEN mode = 'deterministic' AND base = 'numeric'::regtype THEN 'wide' WHEN mode <> 'format' THEN 'bytes'
                   WHEN base = 'numeric'::regtype THEN 'numeric' WHEN base IN ('int4'::regtype, 'date'::regtype) THEN '4' ELSE '8' END;
    cast_args := CASE WHEN typmod THEN ', int, bool' ELSE '' END;
    names := jsonb_build_object('t', t, 's', quote_ident(in_schema), 'b', b, 'layout', layout,
        'fn', type_name, 'targs', cast_args,
        'cat', (SELECT typcategory FROM pg_type WHERE oid = base),
        'vol', CASE WHEN mode = 'random' THEN 'VOLATILE' ELSE 'IMMUTABLE' END,
        -- in units of cpu_operator_cost, as measured
        'cost', CASE mode WHEN 'format' THEN 15 WHEN 'deterministic' THEN 5 ELSE 25 END,
        'ocost', CASE mode WHEN 'format' THEN 15 WHEN 'deterministic' THEN 5 ELSE 7 END,
        'storage', CASE layout
            WHEN '4' THEN 'INTERNALLENGTH = 4, PASSEDBYVALUE, ALIGNMENT = int4, STORAGE = plain'
            WHEN '8' THEN 'INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain'
            WHEN 'numeric' THEN 'INTERNALLENGTH = 8, PASSEDBYVALUE, ALIGNMENT = double, STORAGE = plain'
            -- ciphertext does not compress
            ELSE 'INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = external' END,
        'more', CASE WHEN NOT typmod THEN '' WHEN layout = 'numeric' THEN ', TYPMOD_IN = _pgseal.numeric_typmod_in, TYPMOD_OUT = numerictypmodout'
            ELSE ', TYPMOD_IN = numerictypmodin, TYPMOD_OUT = numerictypmodout' END
            || CASE WHEN base = 'text'::regtype THEN ', COLLATABLE = true' ELSE '' END);
    IF type_name <> quote_ident(type_name) THEN
        RAISE EXCEPTION 'the name of a sealed type is a plain identifier in lower case, not "%"', type_name;
    END IF;

    PERFORM _pgseal.run($sql$
        CREATE TYPE {t};
        CREATE FUNCTION {s}.{fn}_in(cstring, oid, int) RETURNS {t} AS '$libdir/pgseal', 'pgseal_in' LANGUAGE C STABLE STRICT PARALLEL SAFE COST {cost};
        CREATE FUNCTION {s}.{fn}_out({t}) RETURNS cstring AS '$libdir/pgseal', 'pgseal_out' LANGUAGE C STABLE STRICT PARALLEL SAFE COST {ocost};
        CREATE FUNCTION {s}.{fn}_recv(internal, oid, int) RETURNS {t} AS '$libdir/pgseal', 'pgseal_recv' LANGUAGE C STABLE STRICT PARALLEL SAFE COST {cost};
        CREATE FUNCTION {s}.{fn}_send({t}) RETURNS bytea AS '$libdir/pgseal', 'pgseal_send' LANGUAGE C STABLE STRICT PARALLEL SAFE COST {ocost};
        CREATE TYPE {t} (INPUT = {s}.{fn}_in, OUTPUT = {s}.{fn}_out, RECEIVE = {s}.{fn}_recv, SEND = {s}.{fn}_send, CATEGORY = '{cat}', {storage} {more});
        CREATE FUNCTION {s}.{fn}_seal({b}{targs}) RETURNS {t} AS '$libdir/pgseal', 'pgseal_cast_seal' LANGUAGE C {vol} STRICT PARALLEL SAFE COST {cost};
        CREATE FUNCTION {s}.{fn}_open({t}) RETURNS {b} AS '$libdir/pgseal', 'pgseal_cast_open' LANGUAGE C STABLE STRICT PARALLEL SAFE COST {ocost};
        CREATE CAST ({b} AS {t}) WITH FUNCTION {s}.{fn}_seal({b}{targs}) AS ASSIGNMENT;
        CREATE CAST ({t} AS {b}) WITH FUNCTION {s}.{fn}_open({t}) AS IMPLICIT;
        $sql$, names);
    new_type := t::regtype;
    -- For the functions below that are called while the rest is made.
    INSERT INTO _pgseal.type VALUES (new_type, base, mode, domain);
    IF typmod THEN
        PERFORM _pgseal.run($sql$
            CREATE FUNCTION {s}.{fn}_typmod({t}, int, bool) RETURNS {t} AS '$libdir/pgseal', 'pgseal_typmod' LANGUAGE C {vol} STRICT PARALLEL SAFE COST {cost};
            CREATE CAST ({t} AS {t}) WITH FUNCTION {s}.{fn}_typmod({t}, int, bool) AS IMPLICIT;
            $sql$, names);
    END IF;

    -- Casts that the plain type has on assignment.
    plain_casts := CASE base
        WHEN 'int8'::regtype THEN '{smallint,integer,numeric}'::text[]
        WHEN 'int4'::regtype THEN '{smallint,bigint,numeric}'::text[]
        WHEN 'numeric'::regtype THEN '{smallint,integer,bigint,real,double precision}'::text[]
        WHEN 'date'::regtype THEN '{timestamp without time zone,timestamp with time zone}'::text[]
        WHEN 'timestamp'::regtype THEN '{date,timestamp with time zone}'::text[]
        WHEN 'timestamptz'::regtype THEN '{date,timestamp without time zone}'::text[]
        WHEN 'text'::regtype THEN '{character varying,character}'::text[]
        ELSE '{}'::text[] END;
    FOREACH x IN ARRAY plain_casts LOOP
        PERFORM _pgseal.run($sql$
            CREATE FUNCTION {s}.{fn}_from({x}{targs}) RETURNS {t} AS '$libdir/pgseal', 'pgseal_cast_from' LANGUAGE C {tvol} STRICT PARALLEL SAFE COST {cost};
            CREATE FUNCTION {s}.{fn}_to_{word}({t}) RETURNS {x} LANGUAGE sql STABLE STRICT PARALLEL SAFE COST {cost} RETURN {s}.{fn}_open($1)::{x};
            CREATE CAST ({x} AS {t}) WITH FUNCTION {s}.{fn}_from({x}{targs}) AS ASSIGNMENT;
            CREATE CAST ({t} AS {x}) WITH FUNCTION {s}.{fn}_to_{word}({t}) AS ASSIGNMENT;
            $sql$, names || jsonb_build_object('x', x, 'word', (SELECT typname FROM pg_type WHERE oid = x::regtype),
                -- A conversion that depends on the time zone is not immutable.
                'tvol', CASE WHEN mode <> 'random' AND (x LIKE '%with time zone' OR base = 'timestamptz'::regtype) THEN 'STABLE' ELSE names->>'vol' END));
    END LOOP;

    -- The operator || takes anything beside a text, so an implicit cast alone is ambiguous.
    IF base IN ('text'::regtype, 'bytea'::regtype) THEN
        FOR u IN SELECT * FROM (VALUES (t, t), (t, b), (b, t)) AS v(l, r) LOOP
            PERFORM _pgseal.run($sql$
                CREATE FUNCTION {s}.{fn}_cat({l}, {r}) RETURNS {b} LANGUAGE sql STABLE STRICT PARALLEL SAFE COST {cost}
                    RETURN $1::{b} OPERATOR(pg_catalog.||) $2::{b};
                CREATE OPERATOR {s}.|| (LEFTARG = {l}, RIGHTARG = {r}, FUNCTION = {s}.{fn}_cat);
                $sql$, names || to_jsonb(u));
        END LOOP;
    END IF;

    -- What takes a date through its implicit cast to timestamptz; casts are not chained.
    IF base = 'date'::regtype THEN
        PERFORM _pgseal.run($sql$
            CREATE FUNCTION {s}.to_char({t}, text) RETURNS text LANGUAGE sql STABLE STRICT PARALLEL SAFE COST {cost}
                RETURN pg_catalog.to_char({s}.{fn}_open($1), $2);
            CREATE FUNCTION {s}.date_trunc(text, {t}) RETURNS timestamptz LANGUAGE sql STABLE STRICT PARALLEL SAFE COST {cost}
                RETURN pg_catalog.date_trunc($1, {s}.{fn}_open($2));
            $sql$, names);
    END IF;

    IF mode = 'random' THEN
        RETURN new_type;
    END IF;

    -- Equality, hash and the order of indexes: on ciphertext.
    PERFORM _pgseal.run($sql$
        CREATE FUNCTION {s}.{fn}_eq({t}, {t}) RETURNS bool AS '$libdir/pgseal', 'pgseal_eq_{layout}' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
        CREATE FUNCTION {s}.{fn}_ne({t}, {t}) RETURNS bool AS '$libdir/pgseal', 'pgseal_ne_{layout}' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
        CREATE OPERATOR {s}.= (LEFTARG = {t}, RIGHTARG = {t}, FUNCTION = {s}.{fn}_eq, COMMUTATOR = OPERATOR({s}.=),
            NEGATOR = OPERATOR({s}.<>), RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES);
        CREATE OPERATOR {s}.<> (LEFTARG = {t}, RIGHTARG = {t}, FUNCTION = {s}.{fn}_ne, COMMUTATOR = OPERATOR({s}.<>),
            NEGATOR = OPERATOR({s}.=), RESTRICT = neqsel, JOIN = neqjoinsel);
        $sql$, names);
    FOR u IN SELECT * FROM (VALUES ('~<~', 'lt', '~>~', '~>=~', 'scalarlt'), ('~<=~', 'le', '~>=~', '~>~', 'scalarle'),
                                   ('~>=~', 'ge', '~<=~', '~<~', 'scalarge'), ('~>~', 'gt', '~<~', '~<=~', 'scalargt')) AS v(op, f, com, neg, est) LOOP
        PERFORM _pgseal.run($sql$
            CREATE FUNCTION {s}.{fn}_ord_{f}({t}, {t}) RETURNS bool AS '$libdir/pgseal', 'pgseal_ord_{f}_{layout}' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
            CREATE OPERATOR {s}.{op} (LEFTARG = {t}, RIGHTARG = {t}, FUNCTION = {s}.{fn}_ord_{f},
                COMMUTATOR = OPERATOR({s}.{com}), NEGATOR = OPERATOR({s}.{neg}), RESTRICT = {est}sel, JOIN = {est}joinsel);
            $sql$, names || to_jsonb(u));
    END LOOP;
    PERFORM _pgseal.run($sql$
        CREATE FUNCTION {s}.{fn}_cmp({t}, {t}) RETURNS int AS '$libdir/pgseal', 'pgseal_cmp_{layout}' LANGUAGE C IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
        CREATE FUNCTION {s}.{fn}_sort(internal) RETURNS void AS '$libdir/pgseal', 'pgseal_sort_{layout}' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
        CREATE FUNCTION {s}.{fn}_hash({t}) RETURNS int {hash} IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
        CREATE FUNCTION {s}.{fn}_hash_extended({t}, int8) RETURNS int8 {hashext} IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
        CREATE OPERATOR CLASS {s}.{fn}_ops DEFAULT FOR TYPE {t} USING btree AS
            OPERATOR 1 {s}.~<~, OPERATOR 2 {s}.~<=~, OPERATOR 3 {s}.=, OPERATOR 4 {s}.~>=~, OPERATOR 5 {s}.~>~,
            FUNCTION 1 {s}.{fn}_cmp({t}, {t}), FUNCTION 2 {s}.{fn}_sort(internal) {dedup};
        CREATE OPERATOR CLASS {s}.{fn}_hash_ops DEFAULT FOR TYPE {t} USING hash AS
            OPERATOR 1 {s}.=, FUNCTION 1 {s}.{fn}_hash({t}), FUNCTION 2 {s}.{fn}_hash_extended({t}, int8);
        $sql$, names || jsonb_build_object(
            'dedup', CASE WHEN layout IN ('4', '8', 'bytes') THEN ', FUNCTION 4 btequalimage(oid)' ELSE '' END,
            'hash', CASE layout WHEN '4' THEN 'AS ''hashint4'' LANGUAGE internal' WHEN '8' THEN 'AS ''hashint8'' LANGUAGE internal'
                ELSE format('AS ''$libdir/pgseal'', ''pgseal_hash_%s'' LANGUAGE C', layout) END,
            'hashext', CASE layout WHEN '4' THEN 'AS ''hashint4extended'' LANGUAGE internal' WHEN '8' THEN 'AS ''hashint8extended'' LANGUAGE internal'
                ELSE format('AS ''$libdir/pgseal'', ''pgseal_hashext_%s'' LANGUAGE C', layout) END));

    -- Comparison with plain values; order by value.
    equal_to := CASE WHEN is_int THEN '{smallint,integer,bigint}'::text[] ELSE ARRAY[b] END;
    PERFORM _pgseal.make_order(names, t, t);
    FOREACH x IN ARRAY equal_to LOOP
        PERFORM _pgseal.make_equality(names, t, x);
        PERFORM _pgseal.make_equality(names, x, t);
        PERFORM _pgseal.make_order(names, t, x);
        PERFORM _pgseal.make_order(names, x, t);
    END LOOP;

    -- Dates beside timestamps, with and without time zone.
    IF base = ANY ('{date,timestamp,timestamptz}'::regtype[]) THEN
        FOREACH x IN ARRAY '{date,timestamp without time zone,timestamp with time zone}'::text[] LOOP
            CONTINUE WHEN x = b;
            PERFORM _pgseal.make_order(names, t, x);
            PERFORM _pgseal.make_order(names, x, t);
            FOREACH op IN ARRAY '{=,<>}'::text[] LOOP
                PERFORM _pgseal.make_mixed(names, op, t, b, format('%I.%I_open(?)', in_schema, type_name), x, x, '?');
                PERFORM _pgseal.make_mixed(names, op, x, x, '?', t, b, format('%I.%I_open(?)', in_schema, type_name));
            END LOOP;
        END LOOP;
    END IF;

    -- Integers beside other numbers: the parser finds no operator for one implicit cast on either side, or several.
    IF is_int THEN
        FOREACH x IN ARRAY '{smallint,integer,bigint,numeric}'::text[] LOOP
            FOREACH op IN ARRAY '{+,-,*,/,%,<,<=,>,>=,=,<>}'::text[] LOOP
                CONTINUE WHEN x <> 'numeric' AND op IN ('<', '<=', '>', '>=', '=', '<>');
                PERFORM _pgseal.make_mixed(names, op, t, b, format('%I.%I_open(?)', in_schema, type_name), x, x, '?');
                PERFORM _pgseal.make_mixed(names, op, x, x, '?', t, b, format('%I.%I_open(?)', in_schema, type_name));
            END LOOP;
        END LOOP;
    END IF;
    IF is_number THEN
        FOR u IN SELECT format('%I.%I', n.nspname, p.typname) AS t, format_type(y.base, NULL) AS b,
                        format('%I.%I_open(?)', n.nspname, p.typname) AS plain
                 FROM _pgseal.type AS y JOIN pg_type AS p ON p.oid = y.type JOIN pg_namespace AS n ON n.oid = p.typnamespace
                 WHERE y.type <> new_type AND y.mode <> 'random' AND y.base = ANY ('{int4,int8,numeric}'::regtype[]) LOOP
            FOREACH op IN ARRAY '{+,-,*,/,%,<,<=,>,>=,=,<>}'::text[] LOOP
                PERFORM _pgseal.make_mixed(names, op, t, b, format('%I.%I_open(?)', in_schema, type_name), u.t, u.b, u.plain);
                PERFORM _pgseal.make_mixed(names, op, u.t, u.b, u.plain, t, b, format('%I.%I_open(?)', in_schema, type_name));
            END LOOP;
        END LOOP;
    END IF;
    RETURN new_type;
END $create$;
COMMENT ON FUNCTION pgseal.create_type IS
    'makes a sealed type: base type, mode (format, deterministic, random) and key domain';

SELECT pgseal.create_type('sealed_int4', 'int4', 'format', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_int8', 'int8', 'format', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_date', 'date', 'format', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_timestamp', 'timestamp', 'format', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_timestamptz', 'timestamptz', 'format', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_numeric', 'numeric', 'format', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_text', 'text', 'deterministic', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_uuid', 'uuid', 'deterministic', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_bytea', 'bytea', 'deterministic', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_numeric_wide', 'numeric', 'deterministic', 'default', '@extschema@');
SELECT pgseal.create_type('sealed_' || b || '_random', b::regtype, 'random', 'default', '@extschema@')
    FROM unnest('{text,bytea,numeric,int4,int8,float8,bool,date,timestamp,timestamptz,uuid,jsonb}'::text[]) AS b;
UPDATE _pgseal.type SET own = true;

-- ---------------------------------------------------------------- the way over from pgcrypto

CREATE FUNCTION pgseal.encrypt(data bytea, key bytea, type text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_encrypt' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 5;
CREATE FUNCTION pgseal.decrypt(data bytea, key bytea, type text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_decrypt' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 5;
CREATE FUNCTION pgseal.encrypt_iv(data bytea, key bytea, iv bytea, type text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_encrypt' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 5;
CREATE FUNCTION pgseal.decrypt_iv(data bytea, key bytea, iv bytea, type text) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_decrypt' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE COST 5;
CREATE FUNCTION pgseal.from_pgcrypto(data bytea, type text DEFAULT 'aes') RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_from_pgcrypto' LANGUAGE C STABLE STRICT PARALLEL SAFE COST 15;
CREATE FUNCTION _pgseal.from_pgp(data bytea, pgcrypto_schema name, as_bytes bool) RETURNS text
    AS 'MODULE_PATHNAME', 'pgseal_from_pgp' LANGUAGE C STABLE PARALLEL SAFE COST 5000;
CREATE FUNCTION _pgseal.from_pgp_bytea(data bytea, pgcrypto_schema name, as_bytes bool) RETURNS bytea
    AS 'MODULE_PATHNAME', 'pgseal_from_pgp' LANGUAGE C STABLE PARALLEL SAFE COST 5000;
CREATE FUNCTION pgseal.from_pgp(data bytea) RETURNS text LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT _pgseal.from_pgp(data, (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
                                   WHERE e.extname = 'pgcrypto'), false) $$;
CREATE FUNCTION pgseal.from_pgp_bytea(data bytea) RETURNS bytea LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
    SELECT _pgseal.from_pgp_bytea(data, (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
                                         WHERE e.extname = 'pgcrypto'), true) $$;

-- ---------------------------------------------------------------- rotation of lookup keys

-- Deterministic values can only be compared under one key, so they all change at once as far as anybody sees: from
-- the first CALL until the last one ends, the deterministic types of the domain refuse to work.

-- What a rotation cannot carry over; each row is a reason to refuse.
CREATE FUNCTION _pgseal.rotation_obstacles(domain name) RETURNS TABLE (obstacle text) LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE types AS (SELECT t.type::oid AS type FROM _pgseal.type AS t
                   WHERE t.domain = rotation_obstacles.domain AND t.mode <> 'random'),
    -- What values are made of: domains, arrays, ranges, rows.
    parts (part, whole) AS (
        SELECT typbasetype, oid FROM pg_type WHERE typtype = 'd'
        UNION ALL SELECT typelem, oid FROM pg_type WHERE typelem <> 0 AND typlen = -1
        UNION ALL SELECT rngsubtype, unnest(ARRAY[rngtypid, rngmultitypid]) FROM pg_range
        UNION ALL SELECT a.atttypid, c.reltype FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
            WHERE c.reltype <> 0 AND a.attnum > 0 AND NOT a.attisdropped),
    holders AS (SELECT type FROM types UNION SELECT whole FROM holders JOIN parts ON part = holders.type),
    cols AS (SELECT a.*, c.relkind, c.relname FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
             WHERE a.atttypid IN (SELECT type FROM types) AND a.attnum > 0 AND NOT a.attisdropped)
    SELECT format('materialized view %s: drop it and make it again afterwards', attrelid::regclass) FROM cols WHERE relkind = 'm'
    UNION ALL
    SELECT format('generated column %I of %s: drop the expression, or the column', attname, attrelid::regclass)
        FROM cols WHERE attgenerated <> '' AND relkind IN ('r', 'p')
    UNION ALL
    SELECT DISTINCT format('generated column %I of %s is made of sealed column %I: drop the expression, or the column',
                           g.attname, g.attrelid::regclass, cols.attname)
        FROM cols JOIN pg_attribute AS g ON g.attrelid = cols.attrelid AND g.attgenerated <> '' AND NOT g.attisdropped
            AND g.attnum <> cols.attnum
        WHERE EXISTS (SELECT FROM pg_depend AS d LEFT JOIN pg_attrdef AS e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = cols.attrelid AND d.refobjsubid = cols.attnum
            AND ((d.classid = 'pg_class'::regclass AND d.objid = g.attrelid AND d.objsubid = g.attnum)
                 OR (e.adrelid = g.attrelid AND e.adnum = g.attnum)))
    UNION ALL
    SELECT format('rule %I of %s is always on: drop or disable it', w.rulename, w.ev_class::regclass)
        FROM pg_rewrite AS w JOIN pg_class AS c ON c.oid = w.ev_class AND c.relkind IN ('r', 'p')
        WHERE w.ev_class IN (SELECT attrelid FROM cols) AND w.ev_enabled IN ('A', 'R') AND w.ev_type = '2'
    UNION ALL
    SELECT format('table %s is partitioned by range or list of sealed column %I', attrelid::regclass, attname)
        FROM cols JOIN pg_partitioned_table AS p ON p.partrelid = attrelid AND p.partstrat <> 'h' AND attnum = ANY (p.partattrs::int2[])
    UNION ALL
    SELECT format('column %I of %s: values of type %s do not rotate', a.attname, a.attrelid::regclass, format_type(a.atttypid, NULL))
        FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'm')
        WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atttypid IN (SELECT type FROM holders EXCEPT SELECT type FROM types)
    UNION ALL
    -- Sessions keep the constants of its CHECK constraints.
    SELECT format('domain %s is over a sealed type: drop it', format_type(oid, NULL)) FROM pg_type
        WHERE typtype = 'd' AND oid IN (SELECT type FROM holders)
    UNION ALL
    SELECT format('composite type %s has sealed attributes; values of it do not rotate', attrelid::regclass) FROM cols WHERE relkind = 'c'
    UNION ALL
    -- Literals of the type itself are kept as ciphertext in stored expressions.
    SELECT format('%s has a literal of type %s: write it as a plain value with a cast', what, format_type(types.type, NULL))
    FROM types, (
        SELECT 'view ' || ev_class::regclass, ev_action::text FROM pg_rewrite
        UNION ALL SELECT 'a default of ' || adrelid::regclass, adbin::text FROM pg_attrdef
        UNION ALL SELECT 'constraint ' || conname, conbin::text FROM pg_constraint WHERE conbin IS NOT NULL
        UNION ALL SELECT 'policy ' || polname, coalesce(polqual::text, '') || coalesce(polwithcheck::text, '') FROM pg_policy
        UNION ALL SELECT 'trigger ' || tgname, tgqual::text FROM pg_trigger WHERE tgqual IS NOT NULL
        UNION ALL SELECT 'index ' || indexrelid::regclass, coalesce(indexprs::text, '') || coalesce(indpred::text, '') FROM pg_index
        UNION ALL SELECT 'function ' || oid::regprocedure, coalesce(prosqlbody::text, '') || coalesce(proargdefaults::text, '') FROM pg_proc
            WHERE prosqlbody IS NOT NULL OR proargdefaults IS NOT NULL
    ) AS stored (what, tree)
    WHERE tree LIKE '%{CONST :consttype ' || types.type || ' %'
$$;

-- Puts the commands that bring back constraints and indexes on the columns into rotation_ddl, and drops them.
CREATE FUNCTION _pgseal.rotation_strip(domain name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r record;
    step int := 0;
BEGIN
    FOR r IN
        WITH cols AS (SELECT a.attrelid, a.attnum FROM pg_attribute AS a JOIN _pgseal.type AS t ON t.type = a.atttypid
                      WHERE t.domain = rotation_strip.domain AND t.mode <> 'random' AND a.attnum > 0 AND NOT a.attisdropped)
        SELECT c.conrelid::regclass AS relation, c.conname AS name, c.contype, pg_get_constraintdef(c.oid) AS def,
               CASE c.contype WHEN 'f' THEN 2 ELSE 0 END AS rank
        FROM pg_constraint AS c
        WHERE c.contype IN ('p', 'u', 'f', 'x') AND c.conparentid = 0 AND c.coninhcount = 0
          AND EXISTS (SELECT FROM cols WHERE (cols.attrelid = c.conrelid AND cols.attnum = ANY (c.conkey))
                                          OR (cols.attrelid = c.confrelid AND cols.attnum = ANY (c.confkey)))
        ORDER BY rank DESC, c.oid
    LOOP
        step := step + 1;
        -- Foreign keys come back last: they need what they refer to.
        INSERT INTO _pgseal.rotation_ddl VALUES (domain, r.rank * 100000 + step,
            format('ALTER TABLE %s ADD CONSTRAINT %I %s', r.relation, r.name, r.def));
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', r.relation, r.name);
    END LOOP;
    FOR r IN
        WITH cols AS (SELECT a.attrelid, a.attnum FROM pg_attribute AS a JOIN _pgseal.type AS t ON t.type = a.atttypid
                      WHERE t.domain = rotation_strip.domain AND t.mode <> 'random' AND a.attnum > 0 AND NOT a.attisdropped)
        SELECT DISTINCT i.indexrelid, i.indexrelid::regclass AS name, pg_get_indexdef(i.indexrelid) AS def
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid JOIN cols ON cols.attrelid = i.indrelid
        WHERE NOT c.relispartition AND (cols.attnum = ANY (i.indkey::int2[]) OR i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
        ORDER BY 1
    LOOP
        step := step + 1;
        INSERT INTO _pgseal.rotation_ddl VALUES (domain, 100000 + step, r.def);
        EXECUTE format('DROP INDEX %s', r.name);
    END LOOP;
END $$;

-- A procedure with a SET clause cannot COMMIT: each of its transactions sets the path itself.
CREATE PROCEDURE pgseal.rotate(domain name, batch_blocks int DEFAULT 1024) LANGUAGE plpgsql AS $$
DECLARE
    rot _pgseal.rotation;
    r record;
    problems text;
    next_version int;
    moved int8;
    missing bool;
BEGIN
    SET LOCAL search_path = pg_catalog, pg_temp;
    SELECT * INTO rot FROM _pgseal.rotation AS x WHERE x.domain = rotate.domain;
    IF NOT FOUND THEN
        SELECT string_agg(o.obstacle, E'\n' ORDER BY o.obstacle COLLATE "C") INTO problems FROM _pgseal.rotation_obstacles(domain) AS o;
        IF problems IS NOT NULL THEN
            RAISE EXCEPTION 'key domain % cannot rotate yet', domain USING DETAIL = problems;
        END IF;
        -- Everybody who has used the old key in a transaction is waited for.
        FOR r IN SELECT DISTINCT c.relation FROM pgseal.columns AS c JOIN pg_class AS k ON k.oid = c.relation
                 WHERE c.domain = rotate.domain AND c.mode <> 'random' AND k.relkind IN ('r', 'p') ORDER BY 1 LOOP
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', r.relation);
        END LOOP;
        next_version := pgseal.add_key(domain);
        INSERT INTO _pgseal.rotation VALUES (domain, (SELECT d.lookup_version FROM _pgseal.domain AS d WHERE d.domain = rotate.domain), next_version)
            RETURNING * INTO rot;
        INSERT INTO _pgseal.rotation_table (domain, relation, target, columns, blocks)
            SELECT rotate.domain, c.relation, CASE WHEN k.relispartition THEN pg_partition_root(k.oid) ELSE k.oid END,
                   array_agg(c.column_name), pg_relation_size(k.oid) / current_setting('block_size')::int
            FROM pgseal.columns AS c JOIN pg_class AS k ON k.oid = c.relation
            WHERE c.domain = rotate.domain AND c.mode <> 'random' AND k.relkind = 'r' GROUP BY c.relation, k.oid, k.relispartition;
        PERFORM _pgseal.rotation_strip(domain);
        FOR r IN SELECT DISTINCT t.target FROM _pgseal.rotation_table AS t WHERE t.domain = rotate.domain LOOP
            EXECUTE format('ALTER TABLE %s ADD COLUMN pgseal_rotated int', r.target);
        END LOOP;
        UPDATE _pgseal.domain AS d SET rotating_to = next_version WHERE d.domain = rotate.domain;
        COMMIT;
    END IF;

    LOOP
        SET LOCAL search_path = pg_catalog, pg_temp;
        SELECT t.* INTO r FROM _pgseal.rotation_table AS t WHERE t.domain = rotate.domain AND t.next_block < t.blocks
        ORDER BY t.relation LIMIT 1;
        EXIT WHEN NOT FOUND;
        -- Rules have nothing to say about this; the function keeps triggers and constraints away.
        SET LOCAL session_replication_role = replica;
        moved := _pgseal.rotate_batch(r.target, r.relation::oid, r.columns, rot.from_version, rot.to_version,
                                      r.next_block, r.next_block + batch_blocks);
        UPDATE _pgseal.rotation_table AS t SET next_block = r.next_block + batch_blocks, rows_done = rows_done + moved
        WHERE t.domain = rotate.domain AND t.relation = r.relation;
        COMMIT;
    END LOOP;

    -- All or nothing: the new key comes into force, and constraints and indexes come back.
    SET LOCAL search_path = pg_catalog, pg_temp;
    FOR r IN SELECT t.relation FROM _pgseal.rotation_table AS t WHERE t.domain = rotate.domain LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE pgseal_rotated IS NULL)', r.relation) INTO missing;
        IF missing THEN
            RAISE EXCEPTION 'rotation of key domain %: table % has rows that were not rewritten', domain, r.relation;
        END IF;
    END LOOP;
    FOR r IN SELECT DISTINCT t.target FROM _pgseal.rotation_table AS t WHERE t.domain = rotate.domain LOOP
        EXECUTE format('ALTER TABLE %s DROP COLUMN pgseal_rotated', r.target);
    END LOOP;
    UPDATE _pgseal.domain AS d SET lookup_version = rot.to_version, rotating_to = 0 WHERE d.domain = rotate.domain;
    FOR r IN SELECT d.command FROM _pgseal.rotation_ddl AS d WHERE d.domain = rotate.domain ORDER BY d.step LOOP
        EXECUTE r.command;
    END LOOP;
    DELETE FROM _pgseal.rotation_ddl AS d WHERE d.domain = rotate.domain;
    DELETE FROM _pgseal.rotation_table AS t WHERE t.domain = rotate.domain;
    DELETE FROM _pgseal.rotation AS x WHERE x.domain = rotate.domain;
    COMMIT;
END $$;
COMMENT ON PROCEDURE pgseal.rotate IS
    'moves the deterministic values of a key domain to a new key, in batches; called again, it goes on where it stopped';

CREATE VIEW pgseal.rotation_progress AS
    SELECT t.domain, t.relation, x.from_version, x.to_version, x.started, t.rows_done, t.next_block AS blocks_done, t.blocks,
           CASE WHEN t.blocks = 0 THEN 100 ELSE round(100.0 * least(t.next_block, t.blocks) / t.blocks) END AS percent
    FROM _pgseal.rotation_table AS t JOIN _pgseal.rotation AS x ON x.domain = t.domain;
GRANT SELECT ON pgseal.rotation_progress TO PUBLIC;

-- ---------------------------------------------------------------- guard rails

CREATE FUNCTION pgseal.check(OUT relation regclass, OUT column_name name, OUT type regtype, OUT severity text, OUT finding text,
                             OUT distinct_values int8, OUT top_share real)
RETURNS SETOF record LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH cols AS (
        SELECT c.relation, c.column_name, c.type, c.mode, c.domain, k.reltuples, n.nspname, k.relname, k.oid
        FROM pgseal.columns AS c JOIN pg_class AS k ON k.oid = c.relation JOIN pg_namespace AS n ON n.oid = k.relnamespace),
    stats AS (
        SELECT c.*, s.n_distinct IS NOT NULL AS known,
            CASE WHEN s.n_distinct < 0 THEN (-s.n_distinct * greatest(c.reltuples, 0))::int8 ELSE s.n_distinct::int8 END AS d,
            (SELECT max(f) FROM unnest(s.most_common_freqs) AS f) AS top
        FROM cols AS c LEFT JOIN LATERAL (
            SELECT x.n_distinct, x.most_common_freqs FROM pg_stats AS x
            WHERE x.schemaname = c.nspname AND x.tablename = c.relname AND x.attname = c.column_name
            ORDER BY x.inherited DESC LIMIT 1) AS s ON true)
    SELECT s.relation, s.column_name, s.type, v.severity, v.finding, s.d, s.top
    FROM stats AS s CROSS JOIN LATERAL (
        SELECT 'danger', format('only %s different values: whoever reads the files sees groups of equal rows, and with outside knowledge of how common each value is, what they are. Use a random type.', s.d)
            WHERE s.mode <> 'random' AND s.known AND s.d BETWEEN 1 AND 999 AND s.reltuples >= 100
        UNION ALL
        SELECT 'warning', format('the most common value is in %s %% of the rows: it can be told by its frequency alone. Use a random type, or keep that value NULL.', round((100 * s.top)::numeric, 1))
            WHERE s.mode <> 'random' AND s.known AND s.d >= 1000 AND s.top > 0.01
        UNION ALL
        SELECT 'info', 'equal values are seen to be equal, in every column of the key domain; no more than that.'
            WHERE s.mode <> 'random' AND s.known AND s.d > 0 AND NOT (s.d < 1000 AND s.reltuples >= 100) AND coalesce(s.top, 0) <= 0.01
        UNION ALL
        SELECT 'unknown', 'no statistics: run ANALYZE as a role that may read the table, then check again.'
            WHERE s.mode <> 'random' AND NOT s.known
        UNION ALL
        SELECT 'info', 'format-preserving: a changed value is not detected; it opens as another value or, for dates, timestamps and numerics, sometimes as an error.'
            WHERE s.mode = 'format'
        UNION ALL
        SELECT 'warning', 'over 2^31 rows under random nonces: SELECT pgseal.add_key() before 2^32 values were ever sealed under one key.'
            WHERE s.mode = 'random' AND s.reltuples > 2147483648
    ) AS v(severity, finding)
    ORDER BY array_position('{danger,warning,unknown,info}'::text[], v.severity), 1, 2;
$$;
COMMENT ON FUNCTION pgseal.check IS 'what somebody who reads the files learns from the sealed columns of this database';

-- ---------------------------------------------------------------- monitoring

CREATE FUNCTION _pgseal.stat_io(OUT class text, OUT sealed_blocks int8, OUT sealed_bytes int8, OUT opened_blocks int8,
                                OUT opened_bytes int8, OUT zero_blocks_read int8, OUT zero_blocks_written int8,
                                OUT failed_blocks int8, OUT failed_files int8)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'pgseal_stat_io';
CREATE FUNCTION _pgseal.stat_columns(OUT session_sealed int8, OUT session_opened int8, OUT session_failed int8,
                                     OUT sealed int8, OUT opened int8, OUT failed int8)
RETURNS record LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'pgseal_stat_columns';
CREATE FUNCTION pgseal.counting_since() RETURNS timestamptz LANGUAGE C VOLATILE STRICT
AS 'MODULE_PATHNAME', 'pgseal_counting_since';
-- For all, as pg_stat_io: blocks of the whole server by class of files, of no table and no database.
CREATE VIEW pgseal.stat_io AS SELECT * FROM _pgseal.stat_io();
-- For all, too; the function shows what all sessions did to members of pg_read_all_stats only.
CREATE VIEW pgseal.stat_columns AS SELECT * FROM _pgseal.stat_columns();
GRANT SELECT ON pgseal.stat_io, pgseal.stat_columns TO PUBLIC;
COMMENT ON VIEW pgseal.stat_io IS
    'what a sealed server has sealed and opened since pgseal.counting_since(), by class of files; no rows on one that is not sealed';
COMMENT ON VIEW pgseal.stat_columns IS
    'values of sealed columns in this session, and, for members of pg_read_all_stats, in all since pgseal.counting_since() (NULL on a server that is not sealed)';

-- ---------------------------------------------------------------- new file keys

-- The defaults: every relation of the database, 40 MiB in a second. "rewrite": relations with files in an
-- older suite are made anew, by commands that lock them.
CREATE FUNCTION pgseal.reseal(relation regclass DEFAULT NULL, pages_per_second int DEFAULT 5120,
                              begun_only bool DEFAULT false, due_only bool DEFAULT false,
                              rewrite bool DEFAULT false, lock_timeout_seconds int DEFAULT 60)
RETURNS int LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'pgseal_reseal';
CREATE FUNCTION pgseal.file_keys(relation regclass, OUT fork text, OUT segment int, OUT file_key int8,
                                 OUT resealing bool, OUT pages_done int8, OUT pages_left int8,
                                 OUT writes int8)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'pgseal_file_keys';
CREATE FUNCTION pgseal.file_suites(relation regclass, OUT fork text, OUT segment int, OUT suite text,
                                   OUT is_older bool, OUT bytes int8)
RETURNS SETOF record LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'pgseal_file_suites';
REVOKE ALL ON FUNCTION pgseal.reseal, pgseal.file_keys, pgseal.file_suites FROM PUBLIC;
CREATE VIEW pgseal.reseal_progress AS
    SELECT c.oid::regclass AS relation, k.fork, k.segment, k.file_key, k.pages_done, k.pages_left
    FROM pg_class AS c, LATERAL pgseal.file_keys(c.oid) AS k
    WHERE c.relkind IN ('r', 'i', 'S', 't', 'm') AND c.relpersistence <> 't' AND k.resealing;
CREATE VIEW pgseal.rewrite_progress AS
    SELECT c.oid::regclass AS relation, s.suite, count(*) AS files, sum(s.bytes)::int8 AS bytes
    FROM pg_class AS c, LATERAL pgseal.file_suites(c.oid) AS s
    WHERE c.relkind IN ('r', 'i', 'S', 't', 'm') AND c.relpersistence <> 't' AND s.is_older
    GROUP BY 1, 2;
COMMENT ON FUNCTION pgseal.reseal IS
    'starts a background worker that gives the files of a relation, its indexes and its TOAST table new keys, or all files of the database; or makes those relations anew that have files in an older suite; returns its process id';
COMMENT ON FUNCTION pgseal.file_keys IS
    'the files of a relation: the number of the newest key, and whether pages still have the one before it';
COMMENT ON FUNCTION pgseal.file_suites IS
    'the files of a relation: the suite of each, and whether new files get another one';
COMMENT ON VIEW pgseal.reseal_progress IS 'the files of this database that have two keys, and how many of their pages have the newer one';
COMMENT ON VIEW pgseal.rewrite_progress IS 'the relations of this database that have files in an older suite: what pgseal.reseal(rewrite => true) has still to make anew';

-- ---------------------------------------------------------------- module

-- ORDER BY is looked at while a query is planned, so the module has to be there before that.
DO $$
DECLARE
    present text := (SELECT regexp_replace(s, '^session_preload_libraries=', '')
                     FROM pg_db_role_setting AS r, unnest(r.setconfig) AS s
                     WHERE r.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) AND r.setrole = 0
                       AND s LIKE 'session_preload_libraries=%');
BEGIN
    present := coalesce(nullif(present, ''), nullif(current_setting('session_preload_libraries'), ''));
    IF coalesce(present, '') !~ '\mpgseal\M' AND current_setting('shared_preload_libraries') !~ '\mpgseal\M' THEN
        EXECUTE format('ALTER DATABASE %I SET session_preload_libraries = %s', current_database(),
            array_to_string(ARRAY(SELECT quote_literal(trim(x)) FROM unnest(string_to_array(coalesce(present || ',', '') || 'pgseal', ',')) AS x), ', '));
    END IF;
END $$;
