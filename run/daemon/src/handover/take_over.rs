//! The new daemon begins. Everything that may fail is done before the word to go comes, while the old one can still go
//! on: its threads are there by then, and wait for what they are to run.

use super::arrive::{Arrival, Inherited, InheritedClient};
use super::kept_counts::KeptCounts;
use crate::clients::Client;
use crate::config::Config;
use crate::control::Control;
use crate::endpoints::Endpoints;
use crate::group::Group;
use crate::handle::{Daemon, Prepared, TakenOver};
use crate::keys::KeySource;
use crate::listening::{raise_descriptor_limit, settle_mode};
use crate::shard::Shard;
use crate::shard_threads::THREAD_NAME;
use crate::start_error::StartError;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use trunkline_net::Endpoint;
use trunkline_shm::monotonic_ns;
use trunkline_telemetry::Ask;

/// A daemon whose threads wait for what they are to run. They end when what gives it to them is dropped, which is
/// before the daemon is.
pub(super) struct Begun {
    control: (Sender<Control>, Control),
    groups: Vec<(Sender<Group>, Group)>,
    daemon: Daemon,
}

/// [`Daemon::take_over`].
///
/// # Errors
/// [`StartError`].
pub(crate) fn take_over(
    mut config: Config,
    arrival: &Arrival,
    build: &str,
) -> Result<(Daemon, TakenOver, KeptCounts), StartError> {
    raise_descriptor_limit();
    let bound = Endpoints::bind_new(&config, arrival.listening.as_deref())?;
    let keys = KeySource::of_successor(config.tls.clone())?;
    let mut inherited = arrival.receive(build, &config.debug)?;
    inherited.keys = Some(keys);
    let counts = std::mem::take(&mut inherited.counts);
    let listener = inherited.listener.take();
    let path = listener.as_ref().map(|listener| listener.path().to_owned());
    if let Some(path) = &path {
        config.daemon.socket.clone_from(path);
    }
    let begun = Daemon::prepare(config, (listener, path), bound, Some(&mut inherited)).and_then(|ready| {
        let first = ready.shards.first();
        let at_work = first.map_or_else(Vec::new, |one| one.shard.engine.policy_rows());
        ready.daemon.kept.take_over(at_work.into_iter().map(|row| row.definition).collect())?;
        let begun = Begun::of(ready)?;
        arrival.ready()?;
        Ok(begun)
    });
    let begun = begun.inspect_err(|error| arrival.fail(&error.to_string()))?;
    let (stopped_ns, mut taken) =
        (inherited.stopped_ns, TakenOver { from: arrival.from, ..TakenOver::default() });
    taken.sessions = inherited.clients.iter().filter(|c| c.session.is_some() && c.may_move).count();
    taken.connections = begun.shards().map(|shard| shard.sockets.len()).sum();
    let daemon = begun.go(inherited);
    // Every shard has turned by the time it answers.
    taken.calls = daemon.observe(&Ask::default()).iter().map(|shard| shard.snapshot.calls).sum();
    taken.paused_ns = monotonic_ns().saturating_sub(stopped_ns);
    Ok((daemon, taken, counts))
}

impl Begun {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(Prepared { daemon, control, shards, open }: Prepared) -> Result<Self, StartError> {
        let (give, given) = channel::<Control>();
        // From here on all of it, if it fails: the daemon, which waits for the others, goes last.
        let mut begun = Self { control: (give, control), groups: Vec::new(), daemon };
        for group in Group::spread(shards, open)? {
            let (give, given) = channel::<Group>();
            let run = move || given.into_iter().take(1).for_each(Group::run);
            begun.daemon.threads.spawn(THREAD_NAME, run)?;
            begun.groups.push((give, group));
        }
        let run = move || given.into_iter().take(1).for_each(Control::run);
        begun.daemon.threads.spawn("trunkline-control", run)?;
        Ok(begun)
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.groups.iter().flat_map(|(_, group)| group.shards())
    }

    /// Everything is this daemon's from here on, with the files that go with it. Nothing of this can fail.
    pub fn go(mut self, mut inherited: Inherited) -> Daemon {
        self.control.1.listener.iter_mut().for_each(|listener| listener.clear_path_at_end(true));
        let config = Arc::clone(&self.control.1.config);
        let control = self.control.1.listener.iter();
        control.for_each(|listener| settle_mode(listener.path(), config.daemon.socket_mode.0));
        let shards = self.groups.iter_mut().flat_map(|(_, group)| group.shards_mut());
        for one in shards.flat_map(|shard| &mut shard.listening) {
            one.listener.own_file();
            if let (Endpoint::Unix(path), Some(mode)) =
                (one.listener.endpoint(), one.purpose.socket_mode(&config))
            {
                settle_mode(path, mode);
            }
        }
        self.take_clients(&mut inherited);
        for (give, group) in self.groups {
            let _ = give.send(group);
        }
        let (give, control) = self.control;
        let _ = give.send(control);
        self.daemon
    }

    /// Applications hear of their new heaps. One that cannot follow, is gone by now, or may not be here by the rules of
    /// this configuration, is let go of before anything is taken of its ring.
    fn take_clients(&mut self, inherited: &mut Inherited) {
        let (mut heaps, mut left_out) = (inherited.take_heaps(), inherited.take_left_out());
        let Self { control: (_, control), groups, .. } = self;
        let shards: HashMap<usize, &Shard> =
            groups.iter().flat_map(|(_, group)| group.shards()).map(|shard| (shard.index, shard)).collect();
        for InheritedClient { socket, shard, session, may_move, identity } in inherited.clients.drain(..) {
            // One whose shard let go of it when it could not be told any more has a heap, if something is read there,
            // and no rings.
            let is_here = |key| shards.get(&shard).is_some_and(|shard| shard.sessions.look(key).is_some());
            let heap = session.filter(|key| is_here(*key)).and_then(|key| heaps.remove(&(shard, key)));
            let session = session.map(|key| (shard, key));
            let why = session.and_then(|session| left_out.remove(&session));
            let mut client = Client::of_another(socket, session, may_move, identity);
            client.follow(heap, why);
            let _ = control.take_in(client);
        }
        control.hold_to_rules(|session| {
            shards.get(&session.shard).map_or_else(Default::default, |shard| shard.bound(session.key))
        });
        let shards = groups.iter_mut().flat_map(|(_, group)| group.shards_mut());
        shards.for_each(|shard| control.check_programs(shard.index, &mut shard.engine));
    }
}

#[cfg(test)]
mod tests {
    //! Shows that a successor that is not told to go ends, with its threads, and what it holds to its own rules.
    use super::*;
    use crate::handle::tests::attach;
    use trunkline_engine::{Engine, Exported, Limits, export_state};

    /// Until the word to go comes the sockets are the old daemon's, which may have to go on with them.
    #[test]
    fn sockets_have_their_permissions_of_the_new_configuration_when_it_goes() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        let listen = |name: &str| std::os::unix::net::UnixListener::bind(at(name)).unwrap();
        let control = trunkline_shm::ControlListener::bind(at("control"), 0o666).unwrap();
        let mut inherited = Inherited::of_shards(1);
        for name in ["gateway", "removed"] {
            let endpoint = format!("unix://{}", at(name).display());
            let socket = listen(name).into();
            inherited.shards[0].listeners.push((format!("gateway {endpoint}"), endpoint, socket));
        }
        std::fs::set_permissions(at("gateway"), PermissionsExt::from_mode(0o666)).unwrap();
        std::fs::remove_file(at("removed")).unwrap();
        let text = format!(
            "[daemon]\nshards = 1\nsocket_mode = \"0640\"\n[gateway]\nlisten = [\"unix:{}\", \"unix:{}\"]\n\
             socket_mode = \"0620\"\n",
            at("gateway").display(),
            at("removed").display()
        );
        let config = Config::from_toml(&text, "test").unwrap();
        let place = (Some(control), Some(at("control")));
        let prepared = Daemon::prepare(config, place, Endpoints::default(), Some(&mut inherited));
        let begun = prepared.and_then(Begun::of).map_err(|error| error.to_string());
        let Ok(begun) = begun else { panic!("it is taken over: {:?}", begun.err()) };
        assert_eq!((mode("control"), mode("gateway")), (0o666, 0o666), "it may not come to that");
        let daemon = begun.go(inherited);
        assert_eq!((mode("control"), mode("gateway")), (0o640, 0o620));
        daemon.stop();
    }

    /// An older daemon took a process at its word.
    #[test]
    fn programs_that_were_not_checked_are_checked_when_it_goes() {
        let own = std::env::current_exe().unwrap().canonicalize().unwrap().to_str().unwrap().to_owned();
        for (said, is_checked, known) in [
            ("/usr/sbin/payd", true, "/usr/sbin/payd"),
            ("/usr/sbin/payd", false, ""),
            (&own, false, &own),
            ("", false, ""),
        ] {
            let config = Config::from_toml("[daemon]\nshards = 1\n", "test").unwrap();
            let ready = Daemon::prepare(config, (None, None), Endpoints::default(), None);
            let Ok(mut ready) = ready else { panic!("shards can be made") };
            let shard = &mut ready.shards[0].shard;
            let (key, _app) = attach(shard, "till[1]");
            shard.engine.note_program(key, said);
            if !is_checked {
                let Exported { mut state, schemas } = export_state(&shard.engine).unwrap();
                // As a daemon writes it that does not know of it.
                let name = b"program_is_of_host";
                let at = state.windows(name.len()).position(|word| word == name).unwrap();
                state[at] = b'P';
                let fresh = Engine::new(Limits::default(), "near", 1);
                shard.engine = trunkline_engine::take_over(fresh, &state, &schemas).unwrap();
            }
            let (ours, _theirs) = trunkline_shm::ControlSocket::pair().unwrap();
            let _ = ready.control.take_in(Client::of_another(ours, Some((0, key)), true, None));
            ready.control.check_programs(0, &mut shard.engine);
            assert_eq!(shard.engine.program_of(key), known, "{said} {is_checked}");
            assert!(shard.engine.unchecked_programs().is_empty());
        }
    }

    #[test]
    fn threads_that_are_given_nothing_end() {
        let config = Config::from_toml("[daemon]\nshards = 2\n", "test").unwrap();
        let ready = Daemon::prepare(config, (None, None), Endpoints::default(), None);
        let Ok(ready) = ready else { panic!("shards can be made") };
        let Ok(begun) = Begun::of(ready) else { panic!("there are threads") };
        let threads = std::sync::Arc::clone(&begun.daemon.threads);
        drop(begun);
        threads.join();
    }
}
