-- Hears a channel.
LISTEN :"channel"
