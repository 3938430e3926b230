//! The memory limits for a service that runs a configuration: its memory budget, and room for everything that is not in it.

use crate::Budget;

const MIB: u64 = 1 << 20;

/// Room for the program itself, its threads and connections, and for pages of the files that it writes. Measured: 4 to 6 MiB of memory
/// of its own that is in no budget and up to 32 MiB of the executable's pages, of which a release build has half
/// (docs/deploy.md has the figures).
const PROGRAM_BYTES: u64 = 48 * MIB;

/// Limits of a control group, as systemd and Kubernetes set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceMemory {
    /// From here on the kernel takes pages back and slows the service down (`MemoryHigh=`).
    pub high_bytes: u64,
    /// Beyond this the kernel kills the service (`MemoryMax=`).
    pub max_bytes: u64,
}

impl ServiceMemory {
    /// The limits for a configuration with this budget, in whole MiB.
    ///
    /// The kernel counts the buffers of sockets and the pages of files as memory of the service, so they are in the sum. What it can
    /// take back, it takes back between the two limits: a quarter lies between them, so that a service that writes faster than
    /// its disk is slowed down and not killed.
    pub fn of(budget: &Budget) -> ServiceMemory {
        let needed = budget.process_bytes().saturating_add(budget.kernel_bytes());
        let high_bytes = whole_mib(needed.saturating_add(PROGRAM_BYTES));
        let max_bytes = whole_mib(high_bytes.saturating_add(high_bytes / 4));
        ServiceMemory { high_bytes, max_bytes }
    }
}

/// Rounded up.
fn whole_mib(bytes: u64) -> u64 {
    bytes.div_ceil(MIB).saturating_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn of(text: &str) -> (Budget, ServiceMemory) {
        let budget = Config::parse(text, "test").unwrap().budget();
        let memory = ServiceMemory::of(&budget);
        (budget, memory)
    }

    #[test]
    fn everything_fits_below_the_limit_at_which_the_service_is_slowed_down() {
        let listener = |ring: &str| {
            format!(
                "[[listener]]\nlisten = \"127.0.0.1:5140\"\nring_size = \"{ring}\"\n[[listener.target]]\nto = \"null:\"\n"
            )
        };
        for text in
            ["[sockets]\n[[sink]]\nfrom = [\"sockets\"]\nto = \"null:\"\n", &listener("8MiB")]
        {
            let (budget, memory) = of(text);
            let needed = budget.process_bytes() + budget.kernel_bytes();
            assert!(memory.high_bytes >= needed + PROGRAM_BYTES, "{memory:?}");
            assert!(memory.max_bytes * 4 >= memory.high_bytes * 5, "{memory:?}");
            assert_eq!((memory.high_bytes % MIB, memory.max_bytes % MIB), (0, 0));
        }
        // A larger ring is a larger limit.
        let grown = of(&listener("108MiB")).1.high_bytes - of(&listener("8MiB")).1.high_bytes;
        assert!(grown >= 100 * MIB, "{grown}");
    }
}
