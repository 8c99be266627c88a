"""All that is known of PBS."""
