"""Keys and values as bytes: serializers, deserializers, and models."""
