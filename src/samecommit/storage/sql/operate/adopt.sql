-- Makes this database the installation's home; false when it is already. Locks two rows of setting.
SELECT :"schema".adopt(:is_copy::boolean) AS adopted
