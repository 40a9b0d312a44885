"""What each sync did, kept beside the index. Sync records are for display; no plan reads them."""
