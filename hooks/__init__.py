"""The one room that touches a model's inside, and does not know what activations are used for."""
