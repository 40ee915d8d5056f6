"""What a gateway does around each request of its data listener: one module a stage, and what they are held against."""
