{{ config(materialized="table") }}
select id, customer, amount from {{ ref("raw_orders") }}
