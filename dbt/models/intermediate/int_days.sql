select explode(sequence(date'2025-01-01', current_date() + interval 1 year, interval 1 day)) as day
