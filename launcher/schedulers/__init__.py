"""What castoff says to each scheduler, and how it reads the answer: pure pairs, no effects."""
