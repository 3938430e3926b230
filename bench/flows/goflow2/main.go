// How long goflow2's decoder takes for one datagram: go run . DATAGRAM
package main

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/netsampler/goflow2/v2/decoders/sflow"
)

const turns, datagrams = 9, 200_000

func main() {
	datagram, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	var each []int64
	for turn := 0; turn < turns; turn++ {
		start := time.Now()
		for n := 0; n < datagrams; n++ {
			var packet sflow.Packet
			if err := sflow.DecodeMessageVersion(bytes.NewBuffer(datagram), &packet); err != nil {
				panic(err)
			}
			if len(packet.Samples) != 5 {
				panic("not five samples")
			}
		}
		each = append(each, time.Since(start).Nanoseconds()/datagrams)
	}
	all := fmt.Sprint(each)
	sort.Slice(each, func(a, b int) bool { return each[a] < each[b] })
	fmt.Printf("goflow2, records: %d ns a datagram, of %s\n", each[turns/2], all)
}
