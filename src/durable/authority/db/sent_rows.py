"""Rows that a statement is sent as JSON, as a table to join with."""


def sent_rows(parameter: str, alias: str, columns: str) -> str:
    """The SQL of it. The limit tells the planner how few rows there are.

    It would assume a hundred, and rather scan a table with all its past than look up so many.
    """
    rows = f"CAST(:{parameter} AS jsonb)"
    return f"""(
           SELECT * FROM jsonb_to_recordset({rows}) AS {alias}({columns})
            LIMIT jsonb_array_length({rows})) AS {alias}"""
