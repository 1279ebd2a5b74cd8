//! The lab as the supervisor keeps it: what is wanted, what was cut and drained, and the one way to change it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use topologies::lab::Lab;

use super::events::{self, Events};
use super::programs::Programs;
use super::queues::Queues;
use super::reaper::Reaper;
use super::repairs::Watchers;
use super::supplies::Supplies;
use super::{controller, drain, files, parts, status};
use crate::api::protocol::{DrainParts, DrainPlanes, Health, ProgramChange, Status};
use crate::api::server::Writer;
use crate::apply::linux::LinuxKernel;
use crate::apply::{Kernel as _, Scope};
use crate::bird;
use crate::carrier::Carrier;
use crate::carrier::features::Feature;
use crate::failure::{Code, Failure};
use crate::figures::short;
use crate::plan::{self, Faults, Plan};
use crate::state::StateDir;

/// What is wanted right now.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The lab, once applied.
    pub lab: Option<Arc<Lab>>,
    /// What is broken on purpose.
    pub faults: Faults,
    /// Planes drained on purpose.
    pub drained: drain::Drained,
}

/// The supervisor's state.
pub struct World {
    /// State folder.
    pub state: StateDir,
    /// What the world is.
    pub carrier: Carrier,
    /// Start of the supervisor.
    pub started: Instant,
    /// Events.
    pub events: Arc<Events>,
    /// Children.
    pub reaper: Arc<Reaper>,
    /// Programs.
    pub programs: Programs,
    watchers: Watchers,
    view: RwLock<View>,
    kernel: Arc<Mutex<Option<LinuxKernel>>>,
    supplies: Supplies,
    converging: AtomicBool,
    /// Held by whoever changes the lab.
    pub(super) change: tokio::sync::Mutex<()>,
    /// Held while a scenario runs.
    pub scenario: tokio::sync::Mutex<()>,
}

impl World {
    /// An empty world. `modules`: folder of module files, in a guest.
    pub fn new(state: StateDir, carrier: Carrier, modules: Option<PathBuf>) -> anyhow::Result<Self> {
        let events = Arc::new(Events::open(&state.events())?);
        events.emit(events::STARTED, "", format!("carrier {carrier}"));
        let reaper = Reaper::start()?;
        Ok(Self {
            programs: Programs::new(Arc::clone(&reaper), Arc::clone(&events)),
            state,
            carrier,
            started: Instant::now(),
            events,
            reaper,
            watchers: Watchers::default(),
            view: RwLock::default(),
            kernel: Arc::default(),
            supplies: Supplies::new(modules)?,
            converging: AtomicBool::new(true),
            change: tokio::sync::Mutex::default(),
            scenario: tokio::sync::Mutex::default(),
        })
    }

    /// What the kernel can do of what labs ask for.
    pub(super) fn options(&self) -> plan::Options {
        self.supplies.options()
    }

    /// Makes the kernel able to break something; what it can do.
    pub(super) fn provide_for(&self, fault: &str, needs: &[Feature]) -> anyhow::Result<plan::Options> {
        self.supplies.provide_for(fault, needs)
    }

    /// A copy of what is wanted.
    pub fn view(&self) -> View {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The running lab.
    pub fn lab(&self) -> anyhow::Result<Arc<Lab>> {
        self.view().lab.ok_or_else(|| Failure::new(Code::Failed, "the lab is not up yet").into())
    }

    /// What [`World::apply`] would do.
    pub async fn plan(&self, lab: Lab) -> anyhow::Result<(Plan, Vec<ProgramChange>)> {
        let faults = self.view().faults;
        let programs = self.programs.changes(&files::programs(&lab, &self.state)?);
        let (name, options) = (lab.name.clone(), self.supplies.provide(&lab)?);
        let plan =
            self.with_kernel(&name, move |kernel| compute(kernel, &lab, &faults, options, None)).await?;
        Ok((plan, programs))
    }

    /// Makes the world what `lab` says.
    pub async fn apply(&self, lab: Lab, output: &Writer) -> anyhow::Result<(Plan, Vec<ProgramChange>)> {
        let _one = self.change.lock().await;
        let mut view = self.view();
        if let Some(old) = &view.lab
            && old.name != lab.name
        {
            return Err(Failure::new(
                Code::Usage,
                format!("this world holds lab `{}`, not `{}`", old.name, lab.name),
            )
            .into());
        }
        let options = self.supplies.provide(&lab)?;
        view.faults.retain(&lab);
        view.drained.retain(|id, _| lab.planes.iter().any(|p| p.id == *id));
        let faults = view.faults.clone();
        output.progress("namespaces, links, addresses, labels").await?;
        let wanted = lab.clone();
        let plan = self
            .with_kernel(&lab.name, move |kernel| converge(kernel, &wanted, &faults, options, None))
            .await?;
        files::write(&lab, &self.state, &|plane| view.drained.get(&plane).copied().unwrap_or_default())?;
        let wanted = files::programs(&lab, &self.state)?;
        let lab = Arc::new(lab);
        self.set(|v| *v = View { lab: Some(Arc::clone(&lab)), ..view });
        output.progress(format!("{} programs", wanted.len())).await?;
        self.programs.set_crashed(&self.view().faults.crashed).done().await;
        let changes = self.programs.converge(&wanted).await?;
        self.watchers.converge(&lab, &self.events);
        std::fs::write(self.state.lab_json(), serde_json::to_vec_pretty(&*lab)?)
            .context("cannot write lab.json")?;
        if !plan.is_empty() || !changes.is_empty() {
            self.converging.store(true, Ordering::Relaxed);
            let detail = format!("{} kernel actions, {} program changes", plan.actions.len(), changes.len());
            self.events.emit("lab.applied", &lab.name, detail);
        }
        Ok((plan, changes))
    }

    /// Runs blocking kernel work on a thread of its own.
    pub(super) async fn with_kernel<T: Send + 'static>(
        &self,
        lab: &str,
        work: impl FnOnce(&mut LinuxKernel) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let kernel = Arc::clone(&self.kernel);
        let lab = lab.to_owned();
        let work = move || {
            let mut kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
            let open = match kernel.take() {
                Some(open) => open,
                None => LinuxKernel::open(Path::new("/run/netns"), &lab)?,
            };
            work(kernel.insert(open))
        };
        tokio::task::spawn_blocking(work).await.context("kernel work panicked")?
    }

    /// Puts back what the kernel has dropped of interfaces that routers took down and up again, whenever one says so.
    pub async fn keep_wires(&self) {
        loop {
            self.watchers.wires_changed().await;
            let _one = self.change.lock().await;
            let view = self.view();
            let Some(lab) = view.lab else { continue };
            let (wanted, options) = (Arc::clone(&lab), self.options());
            let mend = move |kernel: &mut LinuxKernel| converge(kernel, &wanted, &view.faults, options, None);
            if let Err(e) = self.with_kernel(&lab.name, mend).await {
                tracing::error!("the wires are not as the lab has them: {e:#}");
            }
        }
    }

    /// Drains or undrains planes.
    pub async fn drain(&self, order: &DrainPlanes, out: &Writer) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        let drain = order.drain;
        drain::check(&lab, &self.view().drained, &order.planes, drain, order.force)?;
        let mut notes = Vec::new();
        let mut asked = Vec::new();
        for &plane in &order.planes {
            let already = self.view().drained.contains_key(&plane) == drain;
            if already && !drain {
                notes.push(format!("plane {plane}: already in service"));
            } else if drain {
                self.announce_drain(&lab, plane, order.withdraw).await?;
                // a drain that ran out of time or was interrupted left the plane announced as drained, but not known to be
                // empty: "already" is said of what has been seen
                asked.push((plane, if already { "already " } else { "" }));
            } else {
                notes.push(self.undrain(&lab, plane, order.limit(), out).await?);
            }
        }
        let all = !drain::leaves_one(&lab, &self.view().drained, &[]);
        for (plane, already) in asked {
            if all && !order.withdraw {
                notes.push(format!(
                    "plane {plane}: de-preferred; with every plane drained all of them still carry"
                ));
                continue;
            }
            let took = drain::wait_empty(&lab, plane, order.limit(), out).await?;
            if already.is_empty() {
                let detail = format!("counters still after {}", short(took));
                self.events.emit("plane.drained", &plane.to_string(), detail);
            }
            let how = if order.withdraw { "withdrawn" } else { "drained" };
            let seconds = took.as_secs_f64();
            notes.push(format!(
                "plane {plane}: {already}{how}, no packet enters any more (after {seconds:.1} s)"
            ));
        }
        if all && drain && order.withdraw {
            notes.push(
                "the sites are cut off from each other, and controllers from routers; `undrain` works".into(),
            );
        }
        Ok(notes)
    }

    async fn announce_drain(&self, lab: &Lab, plane: u8, withdraw: bool) -> anyhow::Result<()> {
        let (how, detail) = if withdraw {
            (bird::Drain::Withdraw, "everything withdrawn from the fabric")
        } else {
            (bird::Drain::GracefulShutdown, "BGP de-preferred towards the fabric")
        };
        self.set(|v| {
            v.drained.insert(plane, how);
        });
        self.events.emit("plane.draining", &plane.to_string(), detail);
        drain::announce(lab, plane, how).await
    }

    /// Asks the plane's agents and BIRDs over their unix sockets only: it works when no packet passes any more.
    async fn undrain(&self, lab: &Lab, plane: u8, limit: Duration, out: &Writer) -> anyhow::Result<String> {
        self.wait_programmed(lab, plane, limit, out).await?;
        drain::announce(lab, plane, bird::Drain::Normal).await?;
        self.set(|v| {
            v.drained.remove(&plane);
        });
        drain::wait_chosen(lab, plane, limit).await?;
        self.events.emit("plane.undrained", &plane.to_string(), "back in service");
        Ok(format!("plane {plane}: in service again"))
    }

    /// Drains or undrains links and routers.
    pub async fn drain_parts(&self, request: &DrainParts, out: &Writer) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        let mut notes = Vec::new();
        for (plane, parts) in parts::resolve(&lab, request)? {
            let done = parts::apply(&lab, plane, &parts, out).await?;
            let kind = if request.mode.is_some() { "part.drained" } else { "part.undrained" };
            for (part, note) in parts.iter().zip(&done) {
                self.events.emit(kind, &part.name, note.clone());
            }
            notes.extend(done);
        }
        Ok(notes)
    }

    /// A plane takes traffic back only when its paths are there.
    async fn wait_programmed(
        &self,
        lab: &Lab,
        plane: u8,
        limit: Duration,
        out: &Writer,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let status = self.look(lab).await;
            let Some(p) = status.planes.iter().find(|p| p.plane == plane) else { return Ok(()) };
            // a plane on backup paths is whole, one with holes is not
            if p.lsps.programmed >= p.lsps.wanted && p.routes.up >= p.routes.wanted {
                return Ok(());
            }
            if began.elapsed() > limit {
                return Err(Failure::new(
                    Code::TimedOut,
                    format!("plane {plane} stays drained: {} after {} s", p.reason, limit.as_secs()),
                )
                .hint("`testbed cycle` runs its controller now; `testbed logs` shows what the agents say")
                .into());
            }
            out.progress(format!("plane {plane}: {}", p.reason)).await?;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// The status of `lab`.
    pub async fn status(&self, lab: &Lab) -> Status {
        let mut status = self.look(lab).await;
        Self::count(lab, &mut status).await;
        status
    }

    /// Reads the queues for a status.
    async fn count(lab: &Lab, status: &mut Status) {
        let looked_at = lab.clone();
        // a lab that is just being changed may have no answer; the rest of the status does not depend on it
        let queues = tokio::task::spawn_blocking(move || Queues::read(&looked_at)).await;
        queues.ok().and_then(Result::ok).unwrap_or_default().fill(lab, status);
    }

    /// The status without its queues: what waits need, several times a second.
    pub async fn look(&self, lab: &Lab) -> Status {
        let view = self.view();
        let known = status::Known {
            carrier: self.carrier,
            uptime_s: self.started.elapsed().as_secs(),
            faults: &view.faults,
            drained: &view.drained,
            converging: self.converging.load(Ordering::Relaxed),
            programs: self.programs.status(),
        };
        status::status(lab, known).await
    }

    /// Waits until every plane is ready or drained and all hosts reach each other.
    pub async fn wait_ready(&self, limit: Duration, output: &Writer) -> anyhow::Result<Status> {
        let began = Instant::now();
        let lab = self.lab()?;
        loop {
            let mut status = self.look(&lab).await;
            let mut waiting: Vec<String> = status
                .planes
                .iter()
                .filter(|p| !matches!(p.state, Health::Ready | Health::Drained))
                .map(|p| format!("plane {}: {}", p.plane, p.reason))
                .collect();
            waiting.extend(without_leader(&lab, &status));
            let unreached =
                if waiting.is_empty() { super::fabric::unreached(&lab).await? } else { Vec::new() };
            if waiting.is_empty() && unreached.is_empty() {
                self.converging.store(false, Ordering::Relaxed);
                status.state = Health::Ready;
                Self::count(&lab, &mut status).await;
                return Ok(status);
            }
            let text = if waiting.is_empty() {
                format!("no answer yet: {}", unreached.iter().take(3).cloned().collect::<Vec<_>>().join(", "))
            } else {
                waiting.join("; ")
            };
            if began.elapsed() > limit {
                self.converging.store(false, Ordering::Relaxed);
                return Err(self.not_ready(&text, limit));
            }
            output.progress(text).await?;
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    fn not_ready(&self, text: &str, limit: Duration) -> anyhow::Error {
        let mut message = format!("not ready after {} s: {text}", limit.as_secs());
        for program in self.programs.status().iter().filter(|p| p.state != "running").take(5) {
            let exit = program.last_exit.as_deref().unwrap_or("never started");
            message += &format!("\n  {}/{} is {}: {exit}", program.node, program.name, program.state);
        }
        Failure::new(Code::TimedOut, message)
            .hint("logs are in the lab's state folder; `testbed logs NODE` prints them")
            .into()
    }
}

/// Planes in which no controller leads although not all of them are down on purpose.
fn without_leader(lab: &Lab, status: &Status) -> Vec<String> {
    let runs = |host: &str, name: &str| {
        let mut programs = status.programs.iter().filter(|p| p.node == host && p.name == name);
        programs.any(|p| p.state == "running" || p.state == "waiting")
    };
    let leaderless = status.planes.iter().filter(|p| p.controllers.leader.is_none());
    let waited_for = leaderless
        .filter(|p| controller::replicas(lab, p.plane).iter().any(|r| runs(&r.host, &r.program)))
        .map(|p| format!("plane {}: no controller leads yet", p.plane));
    waited_for.collect()
}

/// What brings the kernel to what is wanted of these nodes, or of all.
fn compute(
    kernel: &mut LinuxKernel,
    lab: &Lab,
    faults: &Faults,
    options: plan::Options,
    nodes: Option<BTreeSet<String>>,
) -> anyhow::Result<Plan> {
    let mut desired = plan::desired(lab, faults, options);
    plan::shut(&mut desired, &files::shut(lab));
    if let Some(nodes) = &nodes {
        desired = desired.only(nodes);
    }
    let observed = kernel.observe(&Scope { nodes })?;
    Ok(plan::diff(&desired, &observed))
}

/// Brings the kernel to what is wanted of these nodes, or of all; what that took.
pub(super) fn converge(
    kernel: &mut LinuxKernel,
    lab: &Lab,
    faults: &Faults,
    options: plan::Options,
    nodes: Option<BTreeSet<String>>,
) -> anyhow::Result<Plan> {
    let plan = compute(kernel, lab, faults, options, nodes)?;
    if !plan.is_empty() {
        kernel.apply(&plan, &mut |_| ())?;
    }
    Ok(plan)
}
