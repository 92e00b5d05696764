"""Why a cell is slow: where its processor time goes, by operator and by function of the runtime."""
