select 1

select 1 as "One", 'x' as b, null, true, 1.50, 10000000000, -5

select 1 + 1, 7 / 2, -7 / 2, 7 % 3, 2 * 3, 2 ^ 3

select 'a' || 'b', 'a' || 1, upper('abc'), lower('ABC'), length('äöü'), substring('abcdef' from 2 for 3), substr('abcdef', 2), trim('  x '), replace('abab', 'a', 'x'), left('abc', 2), right('abc', 2), position('c' in 'abc'), strpos('abc', 'c'), repeat('ab', 2), reverse('abc'), split_part('a,b,c', ',', 2), lpad('7', 3, '0'), initcap('hello world'), concat('a', null, 1), concat_ws('-', 'a', 'b'), md5('x'), ascii('A'), chr(65)

select 1 = 1, 1 <> 1, null = null, null is null, 1 in (1, 2), 1 between 0 and 2, not true, 'abc' like 'a%', 'abc' ilike 'A%', 'abc' ~ '^a', 'abc' !~ 'b', 'abc' ~* 'B', 1 is distinct from null

select case when 1 > 2 then 'a' else 'b' end, coalesce(null, 3), nullif(1, 1), greatest(1, 2, 3), least(1, 2)

select '1'::int, '1.5'::numeric, '1.5'::float8, 'abc'::text, 't'::bool, 'yes'::bool, '2020-01-02'::date, '2020-01-02 03:04:05.678'::timestamp, '2020-01-02 03:04:05+00'::timestamptz, '03:04:05'::time, '1 year 2 months 3 days 04:05:06'::interval, '{1,2,NULL}'::int[], '{a,"b c"}'::text[], '\x6162'::bytea, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '{"a": 1}'::json

select cast('5' as smallint), cast(5 as bigint), 5::text, 5.5::int, 1::bool, true::int, true::text, 5::float4, 'abcdef'::varchar(3), 'x'::char(1), '12'::oid, 'x'::name

select array[1, 2, 3], array['a', 'b'], (array[1, 2, 3])[2], array_length(array[1, 2], 1), array_to_string(array[1, 2, null], ','), array_to_string(array[1, null], ',', '*'), 2 = any(array[1, 2]), 3 <> all(array[1, 2]), array_position(array['a', 'b'], 'b'), cardinality(array[1, 2]), array_append(array[1], 2), array_cat(array[1], array[2]), array_remove(array[1, 2, 1], 1), string_to_array('a,b', ',')

select generate_series(1, 3)

select * from generate_series(1, 5) as g(i)

select i, i * 2 as d from generate_series(0, 10, 5) i order by i desc

select sum(i), count(*), min(i), max(i) from generate_series(1, 100) i

select unnest(array['x', 'y'])

select * from unnest(array[10, 20]) with ordinality as u(v, n)

select * from (values (1, 'a'), (2, 'b')) as t(n, s) order by n

values (1, 'a'), (2, null)

with a as (select 1 as x union all select 2) select x, x + 1 from a order by x

select a.x, b.y from (select 1 as x) a cross join (select 'z' as y) b

select exists (select 1), (select 5), (select 1 where false)

select extract(year from date '2020-03-04'), date_trunc('month', timestamp '2020-03-04 05:06:07'), date '2020-03-04' + 1, date '2020-03-04' - date '2020-03-01', timestamp '2020-01-01' + interval '1 month', to_char(date '2020-03-04', 'YYYY')

select abs(-3), round(2.5), round(2.567, 2), ceil(1.2), floor(-1.2), sqrt(16), power(2, 3), pi(), exp(0), ln(1), trunc(2.7)

select current_user, session_user, user, current_database(), current_catalog, current_schema, current_schema(), current_schemas(false), current_schemas(true), current_role

select current_setting('search_path'), current_setting('nothing.at_all', true), pg_catalog.current_setting('server_encoding')

select quote_ident('a b'), quote_literal('it''s'), quote_nullable(null), format('%s and %I and %L', 'x', 'Y', 'z')

select pg_typeof(1), pg_typeof('x'::text), pg_typeof(1.5), pg_typeof(true), pg_typeof(array[1])

select 1 where false

select 1 limit 0

select 'people'::regclass, 'int4'::regtype, 'pg_catalog'::regnamespace, 'ann'::regrole, 23::regtype, 1259::regclass::text, 'pg_class'::regclass::oid

select E'a\tb', $$dollar$$, 'it''s', U&'d\0061t'

select count(*) filter (where i > 2), string_agg(i::text, ',' order by i), array_agg(i order by i desc), bool_and(i > 0) from generate_series(1, 4) i

select row_number() over (order by i desc), sum(i) over () from generate_series(1, 3) i order by 1

select pg_is_in_recovery(), pg_encoding_to_char(6), pg_size_pretty(0::bigint), pg_size_pretty(123456789::bigint)

select 'a' as x union select 'b' order by 1

select json_build_object('a', 1, 'b', null), '{"a": {"b": 2}}'::json -> 'a' ->> 'b'

select 1::int2, 2::int8, 3.5::real, 1e3, 0.1::float8, 'NaN'::float8, 'infinity'::float8, '-5'::int
