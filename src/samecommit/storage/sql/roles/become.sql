-- Becomes the role that owns the days, until `roles/step_back`.
SET ROLE :"keeper"
