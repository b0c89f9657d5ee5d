"""A simulated card in heat waves, around the real thermal policy and breaker."""
