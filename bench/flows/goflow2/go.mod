module decode

go 1.24

require github.com/netsampler/goflow2/v2 v2.2.6
