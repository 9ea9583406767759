"""How complete windows are when they close, and how long they wait, by each rule under faults."""
