//! The cost of an operation: time by kind, bytes, and energy with its source.
//!
//! [`Meter`] brackets a piece of work and returns its [`Usage`]: wall time, processor time split into user and system,
//! and the wait between them (Kothiyal 2009, section 4.3: elapsed less user less system). It also has the wait for a
//! free processor, and the bytes that the caller says it moved. [`EnergyMeter`] adds joules, split into passive (idle
//! power times elapsed time) and active (the rest; section 5.1). It takes the best source of this machine. That is
//! energy counters, watts the user declared, a calibration with a wall meter ([`calibrate`]), published medians of the
//! processor's family, or a default. Every energy carries its source, its scope and so its band. [`Machine`] describes
//! where the numbers were taken, after Kothiyal's Table 4.1.
//!
//! Nothing here fails because a counter is missing or locked: the next source is used and
//! [`EnergyMeter::notes`] says why. The roots of `/proc` and `/sys` are parameters, so that every
//! reader is tested on a made-up tree. No other module reads a processor or energy clock.

mod calibrate;
mod energy;
mod load;
mod machine;
mod machine_profile;
mod meter_command;
mod power;
mod processor;
mod rapl;
mod roots;
mod rusage;
mod usage;
mod watch;

pub use calibrate::{CalibrationOptions, CalibrationStep, calibrate};
pub use energy::{COUNTER_SPAN_MIN, EnergyMeter, EnergyOptions, EnergySpan};
pub use machine::{Cache, IdlePower, Machine};
pub use machine_profile::{CalibrationPoint, MachineProfile};
pub use power::{DeclaredWatts, Energy, EnergyScope, LoadPoint, PowerModel, Traffic};
pub use processor::{FamilyPower, Processor, SPECPOWER_MEDIANS};
pub use rapl::{Rapl, RaplUnavailable};
pub use roots::{Clock, Roots};
pub use usage::{CpuTime, Meter, Reading, Scope, Usage, process_cpu, process_waiting, thread_cpu};
