{{ config(materialized="incremental", incremental_strategy="insert_overwrite", partition_by=["day"]) }}
select id, amount, cast(updated_at as date) as day from {{ ref("raw_orders") }}
{% if is_incremental() %} where updated_at >= '2024-01-03' {% endif %}
