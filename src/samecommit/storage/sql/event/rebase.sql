-- Takes up a log that was restored or moved from another cluster; true when that was needed.
SELECT :"schema".rebase_outbox()
