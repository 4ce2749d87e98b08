-- The sample of the profile cdc: two tables of a shop, and what a database of your own needs, too (docs/guides/cdc.md). It may run again.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
-- Every server that opens this cluster has these, from its next start on. A slot that nobody reads holds back at most 1 GB of the log;
-- then the slot is lost, and the disk is not.
ALTER SYSTEM SET wal_level = 'logical';
ALTER SYSTEM SET max_wal_senders = 4;
ALTER SYSTEM SET max_replication_slots = 4;
ALTER SYSTEM SET max_slot_wal_keep_size = '1GB';
ALTER SYSTEM SET max_wal_size = '256MB';

\getenv user CDC_USER
\getenv password CDC_PASSWORD
\getenv owner POSTGRES_USER
SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'user') AS is_new \gset
\if :is_new
CREATE ROLE :"user" LOGIN REPLICATION;
\endif
ALTER ROLE :"user" PASSWORD :'password';

SET ROLE :"owner";
SELECT to_regclass('public.customers') IS NULL AS is_new \gset
\if :is_new
CREATE TABLE public.customers (
  id bigint PRIMARY KEY,
  name text NOT NULL,
  city text,
  credit numeric(12, 2) NOT NULL DEFAULT 0,
  born date,
  active boolean NOT NULL DEFAULT true,
  changed_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE public.orders (
  id bigint PRIMARY KEY,
  customer bigint NOT NULL,
  amount numeric(12, 2) NOT NULL,
  note text,
  placed_at timestamptz NOT NULL DEFAULT now()
);
-- The log then has all of a row that was changed or deleted, large values included.
ALTER TABLE public.customers REPLICA IDENTITY FULL;
ALTER TABLE public.orders REPLICA IDENTITY FULL;
INSERT INTO public.customers (id, name, city, credit, born)
  VALUES (1, 'Ada', 'London', 100.50, '1815-12-10'), (2, 'Émile', 'Genève', 0, '1901-02-03'), (3, 'Grace', NULL, 12.25, NULL);
INSERT INTO public.orders (id, customer, amount, note)
  SELECT id, 1 + id % 3, id * 1.25, 'order ' || id FROM generate_series(1, 10) AS made(id);
\endif
RESET ROLE;

GRANT USAGE ON SCHEMA public TO :"user";
GRANT SELECT ON public.customers, public.orders TO :"user";
SELECT NOT EXISTS (SELECT FROM pg_publication WHERE pubname = 'lakehouse') AS is_new \gset
\if :is_new
CREATE PUBLICATION lakehouse FOR TABLE public.customers, public.orders;
\endif
