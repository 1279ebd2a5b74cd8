//! The lab as the supervisor keeps it: what is wanted, what was cut and drained, and the one way to change it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use router_emu::agent::Urgency;
use topologies::lab::Lab;

use super::events::{Events, monotonic_ns};
use super::programs::Programs;
use super::queues::Queues;
use super::reaper::Reaper;
use super::repairs::Watchers;
use super::{controller, drain, files, parts, status};
use crate::api::protocol::{DrainParts, Health, ProgramChange, Status};
use crate::api::server::Writer;
use crate::apply::linux::{self, LinuxKernel};
use crate::apply::{Kernel as _, Scope};
use crate::carrier::Carrier;
use crate::failure::{Code, Failure};
use crate::plan::{self, Plan};
use crate::state::StateDir;

/// What is wanted right now.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The lab, once applied.
    pub lab: Option<Arc<Lab>>,
    /// Links cut on purpose, by name.
    pub cut: BTreeSet<String>,
    /// Planes drained on purpose.
    pub drained: BTreeSet<u8>,
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
    options: plan::Options,
    converging: AtomicBool,
    change: tokio::sync::Mutex<()>,
}

impl World {
    /// An empty world.
    pub fn new(state: StateDir, carrier: Carrier) -> anyhow::Result<Self> {
        let events = Arc::new(Events::open(&state.events())?);
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
            options: linux::probe()?,
            converging: AtomicBool::new(true),
            change: tokio::sync::Mutex::default(),
        })
    }

    /// A copy of what is wanted.
    pub fn view(&self) -> View {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// The running lab.
    pub fn lab(&self) -> anyhow::Result<Arc<Lab>> {
        self.view().lab.ok_or_else(|| Failure::new(Code::Failed, "the lab is not up yet").into())
    }

    /// What [`World::apply`] would do.
    pub async fn plan(&self, lab: Lab) -> anyhow::Result<(Plan, Vec<ProgramChange>)> {
        let cut = self.view().cut;
        let programs = self.programs.changes(&files::programs(&lab, &self.state)?);
        let (name, options) = (lab.name.clone(), self.options);
        let plan = self.with_kernel(&name, move |kernel| compute(kernel, &lab, &cut, options)).await?;
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
        view.cut.retain(|name| lab.link(name).is_some());
        view.drained.retain(|id| lab.planes.iter().any(|p| p.id == *id));
        let cut = view.cut.clone();
        output.progress("namespaces, links, addresses, labels").await?;
        let (wanted, options) = (lab.clone(), self.options);
        let plan = self
            .with_kernel(&lab.name, move |kernel| {
                let plan = compute(kernel, &wanted, &cut, options)?;
                if !plan.is_empty() {
                    kernel.apply(&plan, &mut |_| ())?;
                }
                Ok(plan)
            })
            .await?;
        files::write(&lab, &self.state, &|plane| view.drained.contains(&plane))?;
        let wanted = files::programs(&lab, &self.state)?;
        let lab = Arc::new(lab);
        self.set(|v| *v = View { lab: Some(Arc::clone(&lab)), ..view });
        output.progress(format!("{} programs", wanted.len())).await?;
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
    async fn with_kernel<T: Send + 'static>(
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

    /// Cuts or restores links; says when, on CLOCK_MONOTONIC, for each.
    pub async fn link(&self, links: Vec<String>, cut: bool) -> anyhow::Result<Vec<String>> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        let mut view = self.view();
        let mut notes = Vec::new();
        let mut changed = Vec::new();
        for name in links {
            let link = lab.link(&name).with_context(|| format!("no link {name}"))?;
            let was = view.cut.contains(&name);
            if was == cut {
                notes.push(format!("{name}: already {}", if cut { "cut" } else { "up" }));
                continue;
            }
            changed.push(link.clone());
            if cut {
                view.cut.insert(name)
            } else {
                view.cut.remove(&name)
            };
        }
        if changed.is_empty() {
            return Ok(notes);
        }
        // said before it is done, so that nobody sees the effect without the cause
        let cut_set = view.cut.clone();
        self.set(|v| v.cut.clone_from(&cut_set));
        let wanted = Arc::clone(&lab);
        let links = changed.clone();
        let options = self.options;
        let at = self
            .with_kernel(&lab.name, move |kernel| {
                let mut at = Vec::new();
                if cut {
                    // the kernel does its part under a lock that every repair needs: as on a real router, losing a link
                    // is not put off by what runs there
                    let _hurry = Urgency::hold();
                    for link in &links {
                        let interface = wanted.end(&link.a).context("a link without an end")?;
                        let socket = kernel.socket(&link.a.node).context("a node without a namespace")?;
                        at.push(monotonic_ns());
                        socket.request(&rtnl::link::set_up(interface.ifindex, false))?;
                    }
                } else {
                    at.resize(links.len(), monotonic_ns());
                    let plan = compute(kernel, &wanted, &cut_set, options)?;
                    kernel.apply(&plan, &mut |_| ())?;
                }
                Ok(at)
            })
            .await?;
        for (link, at) in changed.iter().zip(at) {
            let (kind, done) = if cut { ("link.cut", "cut") } else { ("link.restored", "restored") };
            self.events.emit_at(at, kind, &link.name, format!("{} and {}", link.a.node, link.b.node));
            notes.push(format!("{}: {done}", link.name));
        }
        Ok(notes)
    }

    /// Drains or undrains a plane.
    pub async fn drain(
        &self,
        plane: u8,
        drain: bool,
        force: bool,
        limit: Duration,
        out: &Writer,
    ) -> anyhow::Result<String> {
        let _one = self.change.lock().await;
        let lab = self.lab()?;
        let view = self.view();
        drain::check(&lab, &view.drained, plane, drain, force)?;
        // a drain that ran out of time or was interrupted left the plane de-preferred, but not known to be empty: "already"
        // is said of what has been seen
        let again = if view.drained.contains(&plane) == drain { "already " } else { "" };
        if !drain && !again.is_empty() {
            return Ok(format!("plane {plane}: already in service"));
        }
        if drain {
            self.set(|v| {
                v.drained.insert(plane);
            });
            if again.is_empty() {
                self.events.emit("plane.draining", &plane.to_string(), "BGP de-preferred towards the fabric");
            }
            drain::announce(&lab, plane, true).await?;
            if !drain::leaves_one(&lab, &view.drained, plane) {
                return Ok(format!(
                    "plane {plane}: de-preferred; with every plane drained all of them still carry"
                ));
            }
            let took = drain::wait_empty(&lab, plane, limit, out).await?;
            if again.is_empty() {
                self.events.emit(
                    "plane.drained",
                    &plane.to_string(),
                    format!("counters still after {took:?}"),
                );
            }
            Ok(format!(
                "plane {plane}: {again}drained, no packet enters any more (after {:.1} s)",
                took.as_secs_f64()
            ))
        } else {
            self.wait_programmed(&lab, plane, limit, out).await?;
            drain::announce(&lab, plane, false).await?;
            self.set(|v| {
                v.drained.remove(&plane);
            });
            drain::wait_chosen(&lab, plane, limit).await?;
            self.events.emit("plane.undrained", &plane.to_string(), "back in service");
            Ok(format!("plane {plane}: in service again"))
        }
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
            let status = self.status(lab).await;
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
        let view = self.view();
        let looked_at = lab.clone();
        // a lab that is just being changed may have no answer; the rest of the status does not depend on it
        let queues = tokio::task::spawn_blocking(move || Queues::read(&looked_at)).await;
        let queues = queues.ok().and_then(Result::ok).unwrap_or_default();
        let known = status::Known {
            carrier: self.carrier,
            uptime_s: self.started.elapsed().as_secs(),
            cut: &view.cut,
            drained: &view.drained,
            converging: self.converging.load(Ordering::Relaxed),
            programs: self.programs.status(),
            queues,
        };
        status::status(lab, known).await
    }

    /// Waits until every plane is ready or drained and all hosts reach each other.
    pub async fn wait_ready(&self, limit: Duration, output: &Writer) -> anyhow::Result<Status> {
        let began = Instant::now();
        let lab = self.lab()?;
        loop {
            let mut status = self.status(&lab).await;
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

fn compute(
    kernel: &mut LinuxKernel,
    lab: &Lab,
    cut: &BTreeSet<String>,
    options: plan::Options,
) -> anyhow::Result<Plan> {
    let desired = plan::desired(lab, cut, options);
    let observed = kernel.observe(&Scope::default())?;
    Ok(plan::diff(&desired, &observed))
}
