"""What an application is written with: operators, records, containers, tables, parameters."""
