"""Starting, furnishing and stopping a service in its capsule."""
