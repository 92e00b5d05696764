"""Viper: order kept by the channels."""
