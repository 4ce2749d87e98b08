-- fails where an order costs more than the project's variable "dear" says
select id, amount from {{ ref("orders") }} where amount > {{ var("dear", 1000) }}
