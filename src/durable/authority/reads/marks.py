"""Which marks still ask for a replacement, as a part of statements that read claims."""


def is_marked(now: str) -> str:
    """Whether a mark of the claim `r` does: one by an override ends with its time, told or not."""
    return f"""EXISTS (
        SELECT FROM regional.replacements AS p
         WHERE p.region = r.region AND p.token = r.token AND NOT EXISTS (
               SELECT FROM regional.overrides AS o
                WHERE o.region = p.region AND starts_with(p.cause, 'override/')
                  AND o.override = substr(p.cause, length('override/') + 1)
                  AND o.expires_at <= {now}))"""
