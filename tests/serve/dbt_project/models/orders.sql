{{ config(materialized="table", partition_by="day") }}
select id, customer, amount, updated_at, cast(updated_at as date) as day from {{ ref("raw_orders") }}
