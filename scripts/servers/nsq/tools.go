//go:build tools

// Package servers names the programs that scripts/install-tools.sh builds.
package servers

import (
	_ "github.com/nsqio/nsq/apps/nsq_tail"
	_ "github.com/nsqio/nsq/apps/nsqd"
	_ "github.com/nsqio/nsq/apps/nsqlookupd"
)
