//! The exit status of the program.

use std::process::ExitCode;

/// The number that a run of the program ends with: 0 where all went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus(u8);

impl ExitStatus {
    pub(crate) const SUCCESS: ExitStatus = ExitStatus(0);

    /// The number itself.
    pub fn code(self) -> u8 {
        self.0
    }
}

impl From<u8> for ExitStatus {
    fn from(code: u8) -> Self {
        ExitStatus(code)
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        ExitCode::from(status.0)
    }
}
