"""The lead-intake demo: a CSV of leads becomes CRM records, through workers that are killed on the way.

``intake`` reads the file, ``tasks`` are the three steps (enrich, classify, write to the CRM), ``model_stub`` and
``crm_stub`` are the two badly behaved services they talk to, ``audit`` compares both sides at the end, and ``naive``
runs the same input the common way. Everything but Postgres is in this folder; nothing here is imported by the engine.
"""
