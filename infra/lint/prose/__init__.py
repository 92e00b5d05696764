"""The lint of prose: rules of plain English, and measured figures in Markdown. A project leaves this folder out."""
