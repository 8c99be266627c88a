"""What is learned from: pairs and chains as samples, and which of them are held out."""
