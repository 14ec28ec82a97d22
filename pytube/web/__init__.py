"""`pytube web`: the fleet as pages, without scripts. Needs the extra `web`."""
