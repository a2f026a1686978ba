"""Small pieces that loops are made of: services, the doorbell, shutdown."""
