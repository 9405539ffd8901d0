"""The gate audited from outside: its books by an accountant of their own, its answers by what they betray."""
