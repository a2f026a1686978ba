"""Chores that any worker does when they are due: reaper, promoter, kinds, holds, retention, partitions."""
